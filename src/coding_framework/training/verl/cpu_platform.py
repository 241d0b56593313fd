"""verl on machines without an accelerator, through its plug-in hooks. No file of verl is edited.

verl knows CUDA, ROCm and NPU. Here is what it needs of a platform: device module, communication
backend, resource name; what else it lacks for the CPU is in `patches`. This module is imported in
each of a run's processes, so it imports little.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

PLATFORM = "cpu"


def _nothing(*_: object, **__: object) -> None:
    return None


class _CPUDeviceModule(types.ModuleType):
    """Stands where verl expects `torch.cuda`: it does nothing, but for what `_SAYS` has."""

    get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _SAYS.get(name, _nothing)


def _says(value: object) -> Callable[..., Any]:
    return lambda *_, **__: value


_SAYS: dict[str, Callable[..., Any]] = {
    "is_available": _says(False),
    "device_count": _says(1),
    "current_device": _says(PLATFORM),
    "get_device_name": _says("CPU"),
    **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
        _says(0),
    ),
    "mem_get_info": _says((0, 0)),
}


@PlatformRegistry.register(platform=PLATFORM)
class PlatformCPU(PlatformBase):  # type: ignore[misc]
    """A CPU as verl's accelerator. Its slots in Ray are logical: `ray.init(num_gpus=N)`."""

    device_name = PLATFORM
    vendor_name = PLATFORM
    device_module = _CPUDeviceModule("coding_framework_cpu_device")

    is_available = _says(True)
    current_device = _says(PLATFORM)
    device_count = _says(1)
    get_device_capability = _says((None, None))
    communication_backend_name = _says("gloo")
    visible_devices_envvar = _says("CUDA_VISIBLE_DEVICES")
    ray_resource_name = _says("GPU")
    ray_noset_envvars = _says([])
    is_ipc_supported = _says(False)
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

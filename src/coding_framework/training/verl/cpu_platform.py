"""verl on machines without an accelerator, through its plug-in hooks. No file of verl is edited.

verl knows CUDA, ROCm and NPU. Here is what it needs of a platform: device module, communication
backend, resource name; what else it lacks for the CPU is in `patches`. This module is imported in
each of a run's processes, so it imports little.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

PLATFORM = "cpu"


class _CPUDeviceModule(types.ModuleType):
    """Stands where verl expects `torch.cuda`: sizes are 0, everything else does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> str:
        return PLATFORM

    def get_device_name(self, *_: object) -> str:
        return "CPU"

    def memory_allocated(self, *_: object) -> int:
        return 0

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, *_: object) -> tuple[int, int]:
        return (0, 0)

    def get_rng_state(self, *_: object) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: object) -> None:
        torch.set_rng_state(state)


def _nothing(*_: object, **__: object) -> None:
    return None


@PlatformRegistry.register(platform=PLATFORM)
class PlatformCPU(PlatformBase):  # type: ignore[misc]
    """A CPU as verl's accelerator. Its slots in Ray are logical: `ray.init(num_gpus=N)`."""

    device_name = PLATFORM
    vendor_name = PLATFORM
    device_module = _CPUDeviceModule("coding_framework_cpu_device")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return PLATFORM

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None

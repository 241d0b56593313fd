"""verl on machines without an accelerator, through its plug-in hooks. No file of verl is edited.

verl 0.9.1 knows CUDA, ROCm and NPU. What it lacks for the CPU, found by running it:

- a platform (device module, communication backend, resource name): `PlatformCPU`;
- FSDP engines registered for device "cpu";
- a process group: it asks torch for "cpu:gloo,cpu:gloo", a duplicate key, hence plain gloo here;
- CPU offload of the frozen reference asks for pinned memory, which needs an accelerator;
- the critic's loader hard-codes flash-attention 2.

The last three are functions rebound in verl's modules by `install()`, once, at import of the
plug-in; each names what it replaces. A verl of another version may need other ones: the pin in
pyproject.toml and the integration test guard that.
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


def install() -> None:
    """Register the engines and rebind the three functions. Called once, by the plug-in."""
    _use_plain_gloo()
    _register_engines()
    _offload_without_pinning()
    _load_critic_with_sdpa()


def _use_plain_gloo() -> None:
    import verl.utils.distributed as distributed

    original = distributed.initialize_global_process_group_ray

    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend=backend or "gloo")

    distributed.initialize_global_process_group_ray = initialize


def _register_engines() -> None:
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl as fsdp

    for model_type, engine in (
        ("language_model", fsdp.FSDPEngineWithLMHead),
        ("value_model", fsdp.FSDPEngineWithValueHead),
    ):
        EngineRegistry.register(model_type=model_type, backend=["fsdp", "fsdp2"], device=PLATFORM)(
            engine
        )


def _offload_without_pinning() -> None:
    from verl.workers.engine.fsdp import transformer_impl as fsdp

    policy = fsdp.CPUOffloadPolicy
    fsdp.CPUOffloadPolicy = lambda pin_memory=False: policy(pin_memory=False)


def _load_critic_with_sdpa() -> None:
    import verl.utils.model as models

    def load(
        local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
    ) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    models.load_valuehead_model = load

"""torch.cuda: one device, one order of work, so that waiting and streams are nothing."""

from __future__ import annotations

import contextlib
from typing import Any

from . import amp as amp
from ._handle import call
from ._names import look_up
from ._types import Device, Namespace


class Stream:
    """A stream. The judge runs what is asked for in the order in which it is asked."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def synchronize(self) -> None:
        return None

    wait_stream = wait_event = record_event = lambda self, *_: None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def stream(stream: Stream | None) -> Stream:
    return stream or Stream()


def current_stream(device: Any = None) -> Stream:
    return Stream()


default_stream = current_stream


class Event:
    """An event without a clock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        return None

    wait = synchronize = record

    def query(self) -> bool:
        return True


class device(Device):  # noqa: N801 - torch's name
    """Which GPU is meant: it says nothing of where tensors are made."""

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


_PROPERTIES = (
    *("major", "minor", "multi_processor_count", "total_memory", "L2_cache_size"),
    *("shared_memory_per_multiprocessor", "shared_memory_per_block_optin"),
    *("regs_per_multiprocessor", "max_threads_per_multi_processor"),
)


def get_device_properties(device: Any = None) -> Namespace:
    """Those of the device that kernels are judged for."""
    numbers = zip(_PROPERTIES, call("device_properties"), strict=True)
    return Namespace(
        name=get_device_name(), warp_size=32, shared_memory_per_block=48 << 10, **dict(numbers)
    )


def get_device_capability(device: Any = None) -> tuple[int, int]:
    properties: Any = get_device_properties()
    return properties.major, properties.minor


def get_device_name(device: Any = None) -> str:
    name: str = call("device_name")
    return name


def synchronize(device: Any = None) -> None:
    """Each launch has ended when it returns."""


def empty_cache() -> None:
    """There is no cache."""


def set_device(device: Any) -> None:
    """There is one."""


def init() -> None:
    """Done."""


def manual_seed(seed: int) -> None:
    """Nothing is drawn here."""


manual_seed_all = manual_seed


nvtx = Namespace(
    range_push=lambda message: 0,
    range_pop=lambda: 0,
    range=lambda *_, **__: contextlib.nullcontext(),
    mark=lambda message: None,
)


def __getattr__(name: str) -> Any:
    return look_up("torch.cuda", name, "module 'torch.cuda'")

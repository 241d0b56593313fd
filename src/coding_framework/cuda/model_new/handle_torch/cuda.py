"""torch.cuda: one device. What is taken without effect is in `_nothing`, `device` and `nvtx`."""

from __future__ import annotations

import contextlib
from typing import Any

from . import amp as amp
from ._handle import call
from ._names import look_up
from ._types import Device, Namespace


class Stream:
    """A stream. Work on it and the caller's have the order that events and waits give them."""

    device_index = 0

    def __init__(self, device: Any = None, priority: int = 0, **known: int) -> None:
        self.cuda_stream: int = known["handle"] if known else call("new_stream")
        self._before: list[int] = []

    def synchronize(self) -> None:
        call("wait_for_stream", self.cuda_stream)

    def query(self) -> bool:
        return bool(call("stream_is_done", self.cuda_stream))

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        stream.record_event().wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        recorded = event or Event()
        recorded.record(self)
        return recorded

    def __enter__(self) -> Stream:
        self._before.append(call("current_stream"))
        call("use_stream", self.cuda_stream)
        return self

    def __exit__(self, *_: object) -> None:
        call("use_stream", self._before.pop())


def stream(stream: Stream | None) -> Stream:
    return stream or current_stream()


def set_stream(stream: Stream) -> None:
    call("use_stream", stream.cuda_stream)


def current_stream(device: Any = None) -> Stream:
    return Stream(handle=call("current_stream"))


def default_stream(device: Any = None) -> Stream:
    return Stream(handle=0)


class Event:
    """An event. Its clock says what host code is told of the device."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_event: int = call("new_event")

    def record(self, stream: Stream | None = None) -> None:
        call("record", self.cuda_event, (stream or current_stream()).cuda_stream)

    def wait(self, stream: Stream | None = None) -> None:
        call("wait", (stream or current_stream()).cuda_stream, self.cuda_event)

    def synchronize(self) -> None:
        call("wait_for_event", self.cuda_event)

    def query(self) -> bool:
        return bool(call("event_is_done", self.cuda_event))

    def elapsed_time(self, end: Event) -> float:
        return float(call("elapsed_ms", self.cuda_event, end.cuda_event))


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
    call("wait_for_device")


def _nothing(*_: Any, **__: Any) -> None:
    """Memory that is not in use, one device, no drawn numbers, no profiler: no answer changes."""


empty_cache = set_device = init = manual_seed = manual_seed_all = _nothing


nvtx = Namespace(
    range_push=lambda message: 0,
    range_pop=lambda: 0,
    range=lambda *_, **__: contextlib.nullcontext(),
    mark=lambda message: None,
)


def __getattr__(name: str) -> Any:
    return look_up("torch.cuda", name, "module 'torch.cuda'")

"""What a candidate's host code is told about the device, whatever really runs its kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The fields of cudaDeviceProp that kernels ask for. Order: that of host/state.hpp."""

    name: str
    major: int
    minor: int
    multiprocessors: int
    global_memory: int
    """Bytes; as are the next three."""
    l2_bytes: int
    shared_per_multiprocessor: int
    shared_per_block_optin: int
    registers_per_multiprocessor: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    used_memory: int = 1 << 29
    """Bytes that are not free."""
    event_us: int = 1
    """Between any two events: no clock is shown to host code."""

    @property
    def numbers(self) -> tuple[int, ...]:
        return _numbers(self)


@lru_cache(maxsize=8)
def _numbers(properties: DeviceProperties) -> tuple[int, ...]:
    """Kept: every host process is told."""
    return tuple(getattr(properties, name) for name in DeviceProperties.__slots__[1:])


_MULTIPROCESSORS = (14, 16, 28, 32, 46, 56, 58, 60, 64, 68, 72, 78, 80, 84, 98, 108, 114, 128, 132)
"""Of real devices and their MIG instances."""


def others_like(properties: DeviceProperties, draw: Random) -> tuple[DeviceProperties, ...]:
    """Devices of the same compute capability that are no larger: an instance of MIG, a card with
    fewer multiprocessors, and one with as many. draw: what differs otherwise."""
    mine = properties.multiprocessors
    smaller = [n for n in _MULTIPROCESSORS if n < mine] or [mine]
    counts = (min(smaller), draw.choice(smaller), mine)
    names = (f"{properties.name} MIG 1g", "NVIDIA H20", "NVIDIA GH200 480GB")
    return tuple(
        replace(
            properties,
            name=name,
            multiprocessors=count,
            global_memory=memory,
            used_memory=int(memory * draw.uniform(0.05, 0.9)),
            l2_bytes=max(1, properties.l2_bytes * count // mine),
            clock_khz=draw.randrange(1_200_000, 2_000_000, 15_000),
            event_us=draw.randrange(5, 20_000),
        )
        for name, count in zip(names, counts, strict=True)
        for memory in (properties.global_memory * draw.randrange(4, 8) // 8,)
    )


H200 = DeviceProperties(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multiprocessors=132,
    global_memory=150_111_191_040,
    l2_bytes=62_914_560,
    shared_per_multiprocessor=233_472,
    shared_per_block_optin=232_448,
    registers_per_multiprocessor=65_536,
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    clock_khz=1_980_000,
    memory_clock_khz=3_201_000,
    memory_bus_bits=6144,
)

"""What a candidate's host code is told about the device, whatever really runs its kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


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

    @property
    def numbers(self) -> tuple[int, ...]:
        return _numbers(self)


@lru_cache(maxsize=8)
def _numbers(properties: DeviceProperties) -> tuple[int, ...]:
    """Kept: every host process is told."""
    return tuple(getattr(properties, name) for name in DeviceProperties.__slots__[1:])


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

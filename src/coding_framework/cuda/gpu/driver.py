"""The CUDA driver through cuda-bindings, with errors as exceptions that say whose they are.

Imported by device processes, and in the judge by what works on a GPU beside PyTorch: the module
needs no GPU to be imported, its functions need a driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cuda

from coding_framework.errors import DeviceFullError

__all__ = ["DriverError", "call", "cuda", "memory_handle", "open_memory", "packed", "wait_asleep"]

_HANDLE_BYTES = 64
"""CU_IPC_HANDLE_SIZE."""

# cuda.h, enum cudaError_enum
_OUT_OF_MEMORY = 2
NOT_READY = 600
NOT_FOUND = 500
_OF_THE_LAUNCH = frozenset({1, 701, 720})
"""Invalid value, out of resources, cooperative launch too large: the context lives on."""
_OF_THE_KERNEL = frozenset({702, 710, 714, 715, 716, 717, 718, 719, 700})
"""What a kernel did; the context is lost."""

_WORDS = {
    700: "it accessed an illegal address",
    702: "it took too long",
    710: "an assertion failed",
    714: "its stack was corrupted, or ran over",
    715: "it executed an illegal instruction",
    716: "it accessed a misaligned address",
    717: "it used an address of the wrong space",
    718: "it jumped to an invalid place",
    719: "it failed (a trap, or an access out of bounds)",
    720: "a cooperative launch with more blocks than the GPU holds at once",
    701: "more registers, threads or shared memory than a block may have",
    1: "arguments or extents that CUDA does not allow",
}


class DriverError(Exception):
    """A driver call that failed."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(f"{name} ({code})")
        self.code = code

    @property
    def by_launch(self) -> bool:
        """The candidate's launch is not allowed; the device goes on."""
        return self.code in _OF_THE_LAUNCH

    @property
    def by_kernel(self) -> bool:
        """The candidate's kernel did it; the context is of no more use."""
        return self.code in _OF_THE_KERNEL

    @property
    def words(self) -> str:
        """What happened, for a person."""
        return _WORDS.get(self.code, str(self))


def wait_asleep(index: int) -> None:
    """Let this process sleep where it waits for a GPU, before its context there is made: by default
    it would spin, and a GPU that a dozen judges share is waited for most of the time."""
    device = call(cuda.cuDeviceGet(index))
    flags = cuda.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC.value
    call(cuda.cuDevicePrimaryCtxSetFlags(device, flags))


def memory_handle(address: int) -> bytes:
    """What another process opens memory of `cuMemAlloc` by."""
    handle = call(cuda.cuIpcGetMemHandle(address))
    return ctypes.string_at(handle.getPtr(), _HANDLE_BYTES)


def open_memory(handle: bytes) -> int:
    """Address here of another process's memory. Raises DriverError where that is not allowed."""
    opaque = cuda.CUipcMemHandle()
    ctypes.memmove(opaque.getPtr(), handle, _HANDLE_BYTES)
    flags = cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.value
    return int(call(cuda.cuIpcOpenMemHandle(opaque, flags)))


def packed(layout: Sequence[Any], arguments: Sequence[float]) -> tuple[int, object]:
    """A kernel's parameters as cuLaunchKernel takes them; and what has to live until it returns."""
    values = [kind(value) for kind, value in zip(layout, arguments, strict=True)]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
    return (ctypes.addressof(pointers) if values else 0), (values, pointers)


def call(result: tuple[Any, ...]) -> Any:
    """The value (or values) of a driver call. Raises DeviceFullError where the GPU's memory does
    not suffice, else DriverError."""
    error, *values = result
    if int(error) == _OUT_OF_MEMORY:
        raise DeviceFullError(
            "the GPU has no memory left: end other processes that use it, or judge fewer kernels "
            "at once"
        )
    if int(error) != 0:
        raise DriverError(int(error), getattr(error, "name", "CUDA error"))
    return values[0] if len(values) == 1 else tuple(values)

"""Device memory of the judge's that a device process on its GPU maps: how large tensors travel.

Only inputs and outputs ever lie in it, never a reference: candidate code runs in a context that
maps it. Torch's own allocator is not used for it, since a block of that comes with its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import torch

from coding_framework.cuda.device.gpu_sharing import Gpu, GpuLock
from coding_framework.cuda.gpu.driver import call, cuda, memory_handle, wait_asleep
from coding_framework.errors import DeviceError

_STEP_BYTES = 256 << 20


class Exchange:
    """One buffer. Lives until `free_exchanges`."""

    def __init__(self, gpu: Gpu, nbytes: int) -> None:
        device = torch_device(gpu)
        self.gpu, self.nbytes = gpu, nbytes
        self.owner = os.getpid()
        self._lock = GpuLock(gpu.uuid)
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes the context, and makes it current
            self._address = int(call(cuda.cuMemAlloc(nbytes)))
            self.handle = memory_handle(self._address)
            self._bytes = torch.as_tensor(_Array(self._address, nbytes), device=device)

    def put(self, tensor: torch.Tensor) -> None:
        """The elements of a tensor, in row-major order, to the start of the buffer."""
        with self._lock.shared():
            flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            self._bytes[: flat.numel()].copy_(flat)
            torch.cuda.synchronize(self._bytes.device)

    def get(self, nbytes: int) -> torch.Tensor:
        """A copy of the first `nbytes`."""
        with self._lock.shared():
            copy = self._bytes[:nbytes].clone()
            torch.cuda.synchronize(self._bytes.device)
        return copy

    def holds(self, data: torch.Tensor) -> bool:
        """Whether the first bytes are these."""
        with self._lock.shared():
            return torch.equal(self._bytes[: len(data)], data)

    def free(self) -> None:
        """Give its memory back. No process may map it any more."""
        device = self._bytes.device
        del self._bytes
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()
            call(cuda.cuMemFree(self._address))
        self._lock.close()


class _Array:
    """Memory as torch takes it from others (the CUDA array interface, version 3)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


_exchanges: list[Exchange] = []
"""Of this process."""


def exchange_for(gpu: Gpu, nbytes: int) -> Exchange:
    """This process's buffer on a GPU, with room for `nbytes`. Not for several threads. One that has
    become too small stays as long as a device process maps it."""
    for exchange in reversed(_exchanges):
        if exchange.gpu.uuid == gpu.uuid and exchange.nbytes >= nbytes:
            return exchange
    steps = max(1, -(-nbytes // _STEP_BYTES))
    _exchanges.append(Exchange(gpu, steps * _STEP_BYTES))
    return _exchanges[-1]


def exchanged_bytes() -> int:
    """What the buffers of this process hold."""
    return sum(exchange.nbytes for exchange in _exchanges)


def free_exchanges(mapped: Collection[Exchange | None]) -> None:
    """Give back the buffers of this process that are not among those which device processes map."""
    for exchange in [e for e in _exchanges if e not in mapped]:
        _exchanges.remove(exchange)
        if exchange.owner == os.getpid():  # a fork has no context
            exchange.free()


def torch_device(gpu: Gpu) -> torch.device:
    """What torch calls this GPU. Raises DeviceError where torch does not see it."""
    for index in range(torch.cuda.device_count()):
        uuid = str(torch.cuda.get_device_properties(index).uuid)
        if gpu.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-"):
            wait_asleep(index)
            return torch.device("cuda", index)
    raise DeviceError(
        f"PyTorch does not see {gpu.name} ({gpu.uuid}): install a build of PyTorch for CUDA"
    )

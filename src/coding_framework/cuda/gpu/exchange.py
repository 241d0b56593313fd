"""Device memory of the judge's that a device process on its GPU maps: how large tensors travel.

Only inputs and outputs ever lie in it, never a reference: candidate code runs in a context that
maps it. Torch's own allocator is not used for it, since a block of that comes with its neighbours.
"""

from __future__ import annotations

from typing import Any

import torch

from coding_framework.cuda.device.gpu_sharing import Gpu, GpuLock
from coding_framework.cuda.gpu.driver import call, cuda, memory_handle, wait_asleep
from coding_framework.errors import DeviceError

_LEAST_BYTES = 256 << 20


class Exchange:
    """One buffer. Lives as long as this process, or until a larger one takes its place."""

    def __init__(self, gpu: Gpu, nbytes: int) -> None:
        device = torch_device(gpu)
        self.nbytes = nbytes
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


_exchanges: dict[str, Exchange] = {}


def exchange_for(gpu: Gpu, nbytes: int) -> Exchange:
    """This process's buffer on a GPU, with room for `nbytes`. Not for several threads. One that has
    become too small stays: a device process may still map it, and each is twice the one before."""
    found = _exchanges.get(gpu.uuid)
    if found is None or found.nbytes < nbytes:
        room = max(_LEAST_BYTES, 1 << max(0, nbytes - 1).bit_length())
        _exchanges[gpu.uuid] = Exchange(gpu, room)
    return _exchanges[gpu.uuid]


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

"""Where the judge computes what a GPU-sized shape set must give: PyTorch on the GPU, in the judge's
own context, which no candidate's code shares."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from coding_framework.cuda.device.gpu_sharing import Gpu, GpuLock, GpuRooms
from coding_framework.cuda.gpu.device import end_idle, free_unmapped
from coding_framework.cuda.gpu.exchange import exchanged_bytes, torch_device
from coding_framework.cuda.gpu.tolerance_kernels import spread_where_it_lies

_AT_ONCE = 6
"""Judges that compute references on one GPU at the same time."""
_IDLE_PART = 56
"""Part of a GPU's memory (2.5 GiB of an H200) that torch may keep for a judge's next tensors. It is
what a float64 reference of 32 million elements needs on the way: to take and give back so much each
time took longer than the reference."""
_MAPPED_BYTES = 512 << 20
"""Of the exchange buffer: more is worth the second that a device process takes to start."""
GPU_CASE = "gpu "
"""Prefix of the names of shape sets of real size: they share no name with the small ones."""


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """One GPU, as the judge's own PyTorch uses it: a `ReferencePlace`."""

    gpu: Gpu
    device: torch.device
    lock: GpuLock
    rooms: GpuRooms
    new_spread = staticmethod(spread_where_it_lies)

    def empty(self) -> None:
        """Give back memory that waits for this process's next tensors or candidates."""
        end_idle()
        free_unmapped()
        gc.collect()
        torch.cuda.empty_cache()

    def rest(self) -> None:
        """Give back what no judge should keep who has nothing to judge."""
        if exchanged_bytes() > _MAPPED_BYTES:
            self.empty()
        else:
            torch.cuda.empty_cache()

    @property
    def is_crowded(self) -> bool:
        """Whether another judge waits for memory of this GPU."""
        return self.rooms.is_wanted()

    @contextmanager
    def room(self, nbytes: int) -> Iterator[None]:
        """While this process may fill so much of the GPU's memory. Where it needs much, and where
        others wait, it first gives back what it could do without; and what it needed much for,
        before others have those rooms."""
        count = self.rooms.needed(nbytes)
        if count > 1 or self.is_crowded:
            self.empty()
        with self.rooms.take(count):
            try:
                yield
            finally:
                if count > 1:
                    self.empty()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Computations of ours on the GPU: never beside a measurement, in full float32 (TF32 would
        widen the tolerance), ended before the block is left, and most of their memory given back. A
        few judges at a time: float64 copies of large tensors fill a GPU."""
        rounded = torch.backends.cudnn.allow_tf32
        with (
            self.lock.turn(_AT_ONCE),
            self.lock.shared(),
            torch.device(self.device),
            torch.cuda.device(self.device),
        ):
            torch.backends.cudnn.allow_tf32 = False
            try:
                yield
            finally:
                torch.backends.cudnn.allow_tf32 = rounded
            torch.cuda.synchronize(self.device)
            self.tidy()

    def tidy(self) -> None:
        """Give back memory that waits for this process's next tensors, where it is much."""
        device = self.device
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if idle > self.gpu.memory_bytes // _IDLE_PART:
            torch.cuda.empty_cache()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A few steps on tensors that are there already: never beside a measurement, and ended
        before the block is left."""
        with self.lock.shared():
            yield
            torch.cuda.synchronize(self.device)


def place_of(gpu: Gpu) -> GpuPlace:
    """Raises DeviceError where PyTorch does not see the GPU."""
    return GpuPlace(gpu, torch_device(gpu), GpuLock(gpu.uuid), GpuRooms(gpu))

"""Where the judge computes what a GPU-sized shape set must give: PyTorch on the GPU, in the judge's
own context, which no candidate's code shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from coding_framework.cuda.gpu.exchange import torch_device
from coding_framework.cuda.gpu.sharing import Gpu, GpuLock

GPU_CASE = "gpu "
"""Prefix of the names of shape sets of real size: they share no name with the small ones."""


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """One GPU, as the judge's own PyTorch uses it."""

    gpu: Gpu
    device: torch.device
    lock: GpuLock

    @contextmanager
    def working(self) -> Iterator[None]:
        """Computations of ours on the GPU: never beside a measurement, in full float32 (TF32 would
        widen the tolerance), and ended before the block is left."""
        rounded = torch.backends.cudnn.allow_tf32
        with self.lock.shared(), torch.device(self.device), torch.cuda.device(self.device):
            torch.backends.cudnn.allow_tf32 = False
            try:
                yield
            finally:
                torch.backends.cudnn.allow_tf32 = rounded
            torch.cuda.synchronize(self.device)


def place_of(gpu: Gpu) -> GpuPlace:
    """Raises DeviceError where PyTorch does not see the GPU."""
    return GpuPlace(gpu, torch_device(gpu), GpuLock(gpu.uuid))

"""A registry as a server reads it: looked at again when it changed, and without what may not be
used."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import NamedTuple

from coding_framework.registry.kernels import DATABASE, KernelRegistry
from coding_framework.registry.quarantine import quarantined
from coding_framework.registry.receipts import KernelReceipt, ShapeTime
from coding_framework.registry.records import RegisteredKernel, stale_reason

_USED = ("verified", "canary", "active")


class KeptAnswer(NamedTuple):
    """A kernel that answers for a task, by the receipt of the device that was asked for."""

    kernel: RegisteredKernel
    receipt: KernelReceipt

    @property
    def time(self) -> ShapeTime | None:
        """Of the shape set that was timed; None where none was."""
        return next((s for s in self.receipt.shapes if s.kernel_ms is not None), None)

    @property
    def speedup(self) -> float | None:
        """Over PyTorch, at the shape set that was timed."""
        time = self.time
        if time is None or not time.kernel_ms or not time.eager_ms:
            return None
        return time.eager_ms / time.kernel_ms


class RegistryView:
    """A folder whose kernels others add and move meanwhile. Any thread may ask."""

    def __init__(self, folder: Path, keys: Path | None = None) -> None:
        """keys: folder of the public keys that are trusted; None: the registry's own."""
        self.folder, self._keys = folder, keys
        self._lock = threading.Lock()
        self._state: tuple[int, int] | None = None
        self._kernels: tuple[RegisteredKernel, ...] = ()

    def open(self) -> KernelRegistry:
        """To read from; close it. Raises UsageError where there is none, StorageError."""
        return KernelRegistry(self.folder, keys=self._keys, read_only=True)

    def kernels(self) -> tuple[RegisteredKernel, ...]:
        """As they are now. Raises as `open`."""
        with self._lock:
            found = (self.folder / DATABASE).stat()  # every change ends as one file again
            state = (found.st_mtime_ns, found.st_size)
            if state != self._state:
                with self.open() as registry:
                    self._kernels, self._state = registry.snapshot(), state
            return self._kernels

    def answer(self, task: str, protocol: str, device: str, driver: str) -> KeptAnswer | None:
        """The fastest kernel that was verified for a task, by its id, on this device by the judge
        of now; None where there is none. Raises as `open`."""
        of_task = [k for k in self.kernels() if k.task == task and k.status in _USED]
        out = quarantined(
            self.folder, {k.kernel: max(r.made_at for r in k.receipts) for k in of_task}
        )
        found = (
            KeptAnswer(kernel, receipt)
            for kernel in of_task
            if kernel.kernel not in out
            for receipt in kernel.receipts
            if receipt.device == device
            and receipt.reference == "registered"
            and stale_reason(receipt, protocol, {device: driver}) is None
        )
        return min(found, key=_milliseconds, default=None)


def _milliseconds(answer: KeptAnswer) -> float:
    time = answer.time
    return math.inf if time is None or time.kernel_ms is None else time.kernel_ms

"""Puts kernels into a registry as they are found, by `solve` and by a server beside its answers,
and finds them there again."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from coding_framework.registry.digests import kernel_id, task_id
from coding_framework.registry.kernels import DATABASE, KernelRegistry
from coding_framework.registry.quarantine import quarantined
from coding_framework.registry.receipts import (
    KernelReceipt,
    ShapeTime,
    SigningKey,
    judged_on,
    receipt_of,
)
from coding_framework.registry.records import RegisteredKernel, stale_reason
from coding_framework.registry.templates import MadeTemplates
from coding_framework.types import Task, Verdict

TemplatesFn = Callable[[Task, str], Awaitable[MadeTemplates]]
"""Makes the launch templates of a kernel and judges them: `JudgePool.templates`."""
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


class KernelKeeper:
    """A registry whose kernels others add and move meanwhile, the key that signs for it, and who
    makes templates. Any thread may read; one kernel is stored at a time."""

    def __init__(self, folder: Path, keys: Path, key: SigningKey, templates: TemplatesFn) -> None:
        """keys: where the public keys that are trusted lie, that of `key` among them. Raises
        StorageError where there can be no registry."""
        self._folder, self._keys, self._key, self._templates = folder, keys, key, templates
        self._reading = threading.Lock()
        self._state: tuple[int, int] | None = None
        self._kernels: tuple[RegisteredKernel, ...] = ()
        self._one = asyncio.Lock()
        with KernelRegistry(folder, keys=keys) as registry:
            registry.trust(keys / f"{key.name}.pub")

    async def keep(self, task: Task, code: str, verdict: Verdict) -> RegisteredKernel | None:
        """Store a kernel with its verdict, which is correct; None where it is there already, judged
        by the same protocol on the same device. Raises ReceiptError for another verdict, and what
        making templates or storing raises."""
        async with self._one:
            if await asyncio.to_thread(self._has, task, code, verdict):
                return None
            made = await self._templates(task, code)
            return await asyncio.to_thread(self._store, task, code, verdict, made)

    def open(self) -> KernelRegistry:
        """To read from; close it. Raises UsageError where there is none, StorageError."""
        return KernelRegistry(self._folder, keys=self._keys, read_only=True)

    def kernels(self) -> tuple[RegisteredKernel, ...]:
        """As they are now. Raises as `open`."""
        with self._reading:
            found = (self._folder / DATABASE).stat()  # every change ends as one file again
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
            self._folder, {k.kernel: max(r.made_at for r in k.receipts) for k in of_task}
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

    def _has(self, task: Task, code: str, verdict: Verdict) -> bool:
        with KernelRegistry(self._folder, keys=self._keys) as registry:
            found = registry.get(kernel_id(code), task_id(task))
        return found is not None and any(
            (r.protocol, r.device) == (verdict.receipt.protocol, judged_on(verdict))
            for r in found.receipts
        )

    def _store(
        self, task: Task, code: str, verdict: Verdict, made: MadeTemplates
    ) -> RegisteredKernel:
        receipt = receipt_of(
            task, verdict, reference="registered", key=self._key, templates=made.templates
        )
        with KernelRegistry(self._folder, keys=self._keys) as registry:
            return registry.add(code, task, receipt.model_dump(mode="json"), made)


def _milliseconds(answer: KeptAnswer) -> float:
    time = answer.time
    return math.inf if time is None or time.kernel_ms is None else time.kernel_ms

"""Puts kernels into a registry as they are found, by `solve` and by a server beside its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from coding_framework.registry.digests import kernel_id, task_id
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import (
    SigningKey,
    judged_on,
    receipt_of,
)
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.templates import MadeTemplates
from coding_framework.types import Task, Verdict

TemplatesFn = Callable[[Task, str], Awaitable[MadeTemplates]]
"""Makes the launch templates of a kernel and judges them: `JudgePool.templates`."""


class KernelKeeper:
    """A registry whose kernels others add and move meanwhile, the key that signs for it, and who
    makes templates. One kernel is stored at a time."""

    def __init__(self, folder: Path, keys: Path, key: SigningKey, templates: TemplatesFn) -> None:
        """keys: where the public keys that are trusted lie, that of `key` among them. Raises
        StorageError where there can be no registry."""
        self._folder, self._keys, self._key, self._templates = folder, keys, key, templates
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

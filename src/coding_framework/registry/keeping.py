"""Puts kernels into a registry as they are found: by `solve`, by a server beside its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from coding_framework.registry.digests import kernel_id, task_id
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import SigningKey, judged_on, receipt_of
from coding_framework.registry.records import KernelStatus, RegisteredKernel
from coding_framework.registry.templates import MadeTemplates
from coding_framework.registry.view import KeptAnswer, RegistryView
from coding_framework.registry.wanted import widened
from coding_framework.types import JudgeFn, Task, Verdict

TemplatesFn = Callable[[Task, str], Awaitable[MadeTemplates]]
"""Makes the launch templates of a kernel and judges them: `JudgePool.templates`."""


class KernelKeeper:
    """A registry, the key that signs for it, and who makes templates. One kernel at a time."""

    def __init__(self, folder: Path, keys: Path, key: SigningKey, templates: TemplatesFn) -> None:
        """keys: where the public keys that are trusted lie, that of `key` among them. Raises
        StorageError where there can be no registry."""
        self._folder, self._keys, self._key, self._templates = folder, keys, key, templates
        self.view = RegistryView(folder, keys)
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

    async def widen(
        self, kept: KeptAnswer, wanted: Sequence[str], judge: JudgeFn, *, on_gpu: bool
    ) -> dict[str, str]:
        """Judge a kernel that is in use at more shapes, and store it for them with the status that
        it has. Gives why, by shape key, for those that it is not stored for. wanted: shape keys of
        calls. on_gpu: whether the judge judges on one. Raises what judging and storing raises."""
        code, task = await asyncio.to_thread(self._stored, kept.kernel)
        more = widened(task, wanted, on_gpu=on_gpu)
        if more.task is None:
            return more.refused
        verdict = await judge(more.task, code)
        if not verdict.correct:
            why = f"the kernel is not right there: {verdict.status.value}: {verdict.reason}"
            return more.refused | dict.fromkeys(more.keys, why[:300])
        async with self._one:
            made = await self._templates(more.task, code)
            refused = {r.shape_key: f"{r.obstacle}: {r.reason}"[:300] for r in made.refusals}
            stored = await asyncio.to_thread(self._store, more.task, code, verdict, made)
            if stored.status != kept.kernel.status and stored.status == "verified":
                await asyncio.to_thread(self._move, stored, kept.kernel.status)
        shapes = {t.shape_key for t in made.templates}
        left = {
            key: refused.get(inputs, "it was not judged there")
            for key, inputs in more.keys.items()
            if inputs not in shapes
        }
        return more.refused | left

    def _stored(self, kernel: RegisteredKernel) -> tuple[str, Task]:
        with self.view.open() as registry:
            return registry.source(kernel), registry.task(kernel)

    def _move(self, kernel: RegisteredKernel, status: KernelStatus) -> None:
        with KernelRegistry(self._folder, keys=self._keys) as registry:
            registry.move(kernel, status, "as for its other shapes")

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

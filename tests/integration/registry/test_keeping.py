"""Kernels that a server returns go into its registry."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coding_framework.data.registry import find_task
from coding_framework.registry.keeping import KernelKeeper
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import ReceiptError, new_key
from coding_framework.registry.templates import MadeTemplates
from coding_framework.types import Task
from support.registered import made_templates
from support.serving import ScriptedJudge

pytestmark = pytest.mark.integration


class Maker:
    """Makes templates, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, task: Task, code: str) -> MadeTemplates:
        self.asked += 1
        return made_templates(task, code)


def test_a_kernel_is_kept_once_however_often_it_is_found(tmp_path: Path) -> None:
    keys, maker = tmp_path / "keys", Maker()
    keeper = KernelKeeper(tmp_path / "registry", keys, new_key(keys, "judge"), maker)
    task, code = find_task("relu"), "// a kernel\n"

    async def found_three_times() -> list[bool]:
        verdict = await ScriptedJudge()(task, code)
        kept = await asyncio.gather(*(keeper.keep(task, code, verdict) for _ in range(3)))
        return [kernel is not None for kernel in kept]

    assert sorted(asyncio.run(found_three_times())) == [False, False, True]
    assert maker.asked == 1
    with KernelRegistry(tmp_path / "registry", read_only=True) as registry:
        (kernel,) = registry.snapshot()
    assert len(kernel.templates) == 1
    assert kernel.receipts[0].shapes[0].kernel_ms == 1.0


def test_a_kernel_that_is_wrong_is_not_kept(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keeper = KernelKeeper(tmp_path / "registry", keys, new_key(keys, "judge"), Maker())
    task, code = find_task("relu"), "// status=rejected\n"
    verdict = asyncio.run(ScriptedJudge()(task, code))
    with pytest.raises(ReceiptError, match="gets no receipt"):
        asyncio.run(keeper.keep(task, code, verdict))

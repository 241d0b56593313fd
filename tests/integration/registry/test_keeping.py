"""Kernels that a server returns go into its registry."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from coding_framework.data.registry import find_task
from coding_framework.registry.keeping import KernelKeeper
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import ReceiptError, new_key
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.templates import MadeTemplates
from coding_framework.types import Task
from support.registered import made_templates
from support.serving import RELU, ScriptedJudge, Upstream, answer, model_server

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


def test_a_server_keeps_what_it_returned_verified(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    upstream = Upstream(lambda body: answer(RELU))
    with model_server(tmp_path, upstream, templates=Maker()) as (url, _):
        while httpx.get(f"{url}/readyz").status_code != 200:
            time.sleep(0.02)
        body = {
            "model": "kernels",
            "messages": [{"role": "user", "content": "fast please"}],
            "cuda_rl": {"task": "relu"},
        }
        said = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
        kernel = said.headers["x-cudarl-kernel"]
        found: tuple[RegisteredKernel, ...] = ()
        while not found:
            with KernelRegistry(folder, read_only=True) as registry:
                found = registry.snapshot()
            time.sleep(0.02)
    assert [k.kernel for k in found] == [kernel]
    assert found[0].status == "verified"
    assert len(found[0].templates) == 1

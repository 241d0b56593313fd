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
from coding_framework.registry.quarantine import add_to_quarantine
from coding_framework.registry.receipts import ReceiptError, check_receipt, new_key
from coding_framework.registry.records import RegisteredKernel
from coding_framework.registry.templates import MadeTemplates
from coding_framework.types import Task
from support.registered import made_templates, template_of
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


class AllShapes:
    """Makes a template of every shape set."""

    async def __call__(self, task: Task, code: str) -> MadeTemplates:
        made = made_templates(task, code)
        templates = tuple(template_of(task, code, case) for case in range(len(task.cases)))
        return made.model_copy(update={"templates": templates, "refusals": ()})


def _ready(url: str) -> None:
    while httpx.get(f"{url}/readyz").status_code != 200:
        time.sleep(0.02)


def _ask(url: str, **options: object) -> httpx.Response:
    body = {
        "model": "kernels",
        "messages": [{"role": "user", "content": "fast please"}],
        "cuda_rl": {"task": "relu", **options},
    }
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def _kept(folder: Path) -> RegisteredKernel:
    while True:
        with KernelRegistry(folder, read_only=True) as registry:
            if found := registry.snapshot():
                return found[0]
        time.sleep(0.02)


def test_a_server_answers_from_its_registry_before_it_asks_the_model(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: answer(RELU))
    with model_server(tmp_path, upstream, templates=AllShapes()) as (url, _):
        _ready(url)
        sampled = _ask(url)
        kernel = _kept(tmp_path / "registry")
        asked = len(upstream.bodies)
        again = _ask(url)
        assert len(upstream.bodies) == asked
        told = again.json()["choices"][0]["cuda_rl"]
        first = sampled.json()["choices"][0]["cuda_rl"]
        assert (told["from"], told["status"], told["turns"]) == ("registry", "verified", 0)
        assert (told["kernel_id"], told["speedup"]) == (kernel.kernel, first["speedup"])
        assert check_receipt(told["receipt"], tmp_path / "keys") == kernel.receipts[0]
        assert RELU.rstrip() in again.json()["choices"][0]["message"]["content"]
        assert "from" not in _ask(url, fresh=True).json()["choices"][0]["cuda_rl"]
        assert "from" not in _ask(url, min_speedup=1000).json()["choices"][0]["cuda_rl"]
        add_to_quarantine(tmp_path / "registry", kernel.kernel, "a test")
        assert "from" not in _ask(url).json()["choices"][0]["cuda_rl"]

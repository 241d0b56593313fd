"""Kernels that a server returns go into its registry."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
import torch

from coding_framework.data.registry import find_task
from coding_framework.deployment import apply as kernels
from coding_framework.deployment.apply.asking import KernelAsker
from coding_framework.errors import UsageError
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


def test_everybody_who_may_ask_sees_the_servers_kernels(tmp_path: Path) -> None:
    upstream = Upstream(lambda body: answer(RELU))
    with model_server(tmp_path, upstream, templates=AllShapes()) as (url, _):
        _ready(url)
        assert httpx.get(f"{url}/v1/kernels").json()["data"] == []
        _ask(url)
        kernel = _kept(tmp_path / "registry").kernel
        (row,) = httpx.get(f"{url}/v1/kernels", params={"op": "relu"}).json()["data"]
        assert (row["kernel"], row["op"], row["status"]) == (kernel, "relu", "verified")
        assert len(row["templates"]) == 3
        assert httpx.get(f"{url}/v1/kernels", params={"op": "gelu"}).json()["data"] == []
        assert httpx.get(f"{url}/v1/kernels", params={"after": kernel}).json()["data"] == []
        one = httpx.get(f"{url}/v1/kernels/{kernel}").json()
        assert (one["kernel"], one["history"]) == (kernel, [])
        assert httpx.get(f"{url}/v1/kernels/{kernel}/source").text == RELU
        receipt = httpx.get(f"{url}/v1/kernels/{kernel}/receipt").json()
        assert check_receipt(receipt, tmp_path / "keys").kernel == kernel
        missing = httpx.get(f"{url}/v1/kernels/sha256:{64 * 'f'}")
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "no_such_kernel")


def test_a_program_asks_the_server_for_the_shapes_that_it_misses(tmp_path: Path) -> None:
    folder, upstream = tmp_path / "registry", Upstream(lambda body: answer(RELU))

    def fused(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    asks = kernels.op("asks_the_server", task="relu")(fused)
    with model_server(tmp_path, upstream, templates=AllShapes()) as (url, _):
        _ready(url)
        _ask(url)
        kernel = _kept(folder)
        with KernelRegistry(folder) as registry:
            registry.move(kernel, "active", "a test")
        try:
            kernels.enable(folder, device="emulator", allow_stale=True, ask=url)
            for shape in ((7, 9), (0, 4)):
                asks(torch.zeros(shape))
            said: dict[str, str] = {}
            while len(said) < 2 or "asked" in said.values():
                said = kernels.stats()["asks_the_server"]["asked"]
                time.sleep(0.05)
        finally:
            kernels.disable()
            kernels._ops.pop("asks_the_server")
    assert said["float32[7,9]"] == "added"
    assert "without elements" in said["float32[0,4]"]
    with KernelRegistry(folder, read_only=True) as registry:
        statuses = {k.task: k.status for k in registry.snapshot()}
        shapes = {t.shape_key for k in registry.snapshot() for t in k.templates}
        for task in statuses:
            name = f"{kernel.kernel[7:19]}/{task[7:19]}"
            assert registry.find(name).task == task
    assert sorted(statuses.values()) == ["active", "active"]
    assert "float32[7,9]" in shapes


def test_a_server_that_is_not_there_fails_no_call(tmp_path: Path) -> None:
    asker = KernelAsker("http://127.0.0.1:9", pause=lambda seconds: None)
    asker.want("relu", "float32[4]")
    while (said := asker.said["relu", "float32[4]"]) == "asked":
        time.sleep(0.01)
    assert "did not answer" in said
    with pytest.raises(UsageError, match="no address"):
        KernelAsker("file:///etc/passwd")

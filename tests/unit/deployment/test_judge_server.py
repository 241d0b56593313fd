"""The judge over HTTP: what callers are told, and that what was taken is judged to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from coding_framework.data.registry import find_task
from coding_framework.deployment.http import Gate
from coding_framework.deployment.judge_server import JudgeServer
from coding_framework.deployment.tokens import TokenFile
from coding_framework.errors import InfrastructureError
from coding_framework.types import Candidate, Status, Task, Verdict

pytestmark = pytest.mark.unit


def said_of(task: Task, code: str) -> Verdict:
    return Verdict(
        status=Status.COMPILE_ERROR,
        reason=f"no kernel in {code!r}",
        task=task.name,
        candidate_sha256=Candidate(code=code).sha256,
        backend="emulator",
    )


async def judge(task: Task, code: str) -> Verdict:
    if code == "fault":
        raise InfrastructureError("no nvcc is here: install it")
    return said_of(task, code)


def client(tokens: TokenFile | None = None, *, queue: int = 4) -> TestClient:
    server = JudgeServer(judge, Gate(tokens), queue=queue)
    return TestClient(server.app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def ask(asked: TestClient, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    answer = asked.post("/v1/verdicts", json=body, headers=headers)
    return answer.status_code, answer.json()


def sentence(answer: dict[str, Any]) -> str:
    return str(answer["error"]["message"])


def test_a_task_and_a_kernel_get_a_verdict() -> None:
    status, answer = ask(client(), {"task": "relu", "code": "x"})
    assert (status, answer["status"], answer["task"]) == (200, "compile_error", "relu")


def test_a_batch_gets_a_verdict_or_a_fault_for_each_in_its_order() -> None:
    kernels = [{"id": i, "task": "relu", "code": i} for i in ("b", "fault", "a")]
    status, answer = ask(client(), {"kernels": kernels})
    assert status == 200
    assert [r["id"] for r in answer["results"]] == ["b", "fault", "a"]
    assert answer["results"][1]["error"] == "no nvcc is here: install it"
    assert "verdict" in answer["results"][2]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"task": "relw", "code": "x"}, 400, "close names: relu"),
        ({"task": "examples/scaled_tanh.py", "code": "x"}, 400, "a file cannot be named"),
        ({"task": "/etc/passwd.json", "code": "x"}, 400, "a file cannot be named"),
        ({"task": {"name": "own"}, "code": "x"}, 403, "tasks:trusted"),
        ({"task": 3, "code": "x"}, 400, "must be a name"),
        ({"task": "r" * 300, "code": "x"}, 400, "no task is called"),
        ({"task": "relu\0", "code": "x"}, 400, "no task is called"),
        ({"task": "relu"}, 400, '"task" and "code"'),
        ({"task": "relu", "code": 3}, 400, '"task" and "code"'),
        ({"task": "relu", "code": None}, 400, "must be texts"),
        ({"task": "relu", "code": "x", "file": 1}, 400, '"task" and "code"'),
        ({"kernels": []}, 400, "at least one"),
        ({"kernels": [3]}, 400, '"task" and "code"'),
        ({"kernels": [{"id": "a", "task": "relu", "code": "x"}] * 2}, 400, "unique"),
        ({"kernels": [{"task": "relu", "code": "x"}] * 5}, 413, "4 kernels at a time"),
        ({"kernels": [{"task": "relu", "code": "x"}] * 300}, 413, "at most 256"),
        ({"task": "relu", "code": "fault"}, 503, "no nvcc"),
    ],
)
def test_a_fault_is_a_sentence(body: Any, status: int, said: str) -> None:
    got, answer = ask(client(), body)
    assert got == status
    assert said in sentence(answer)


def test_only_a_token_with_its_scope_may_judge_and_only_a_trusted_one_brings_tasks(
    tmp_path: Path,
) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    secrets = [
        tokens.create(scopes)[1]
        for scopes in (("complete",), ("verify",), ("verify", "tasks:trusted"))
    ]
    asked = client(tokens)
    body = {"task": find_task("relu").model_dump(mode="json"), "code": "x"}
    assert ask(asked, body)[0] == 401
    assert ask(asked, body, Authorization="Bearer crl_wrong")[0] == 401
    got = [ask(asked, body, Authorization=f"Bearer {secret}")[0] for secret in secrets]
    assert got == [403, 403, 200]


class HeldJudge:
    """Judges when it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.judged: list[str] = []

    async def __call__(self, task: Task, code: str) -> Verdict:
        await self.may.wait()
        self.judged.append(code)
        return said_of(task, code)


async def test_what_was_taken_is_judged_though_its_client_goes_and_a_full_queue_says_so() -> None:
    held = HeldJudge()
    server = JudgeServer(held, Gate(None), queue=1)
    transport = httpx.ASGITransport(server.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:

        async def post(code: str) -> httpx.Response:
            return await asking.post("/v1/verdicts", json={"task": "relu", "code": code})

        first = asyncio.create_task(post("first"))
        while "cuda_rl_judge_queue 1.0" not in (await asking.get("/metrics")).text:
            await asyncio.sleep(0.01)
        second = await post("second")
        assert second.status_code == 503
        assert int(second.headers["Retry-After"]) >= 1
        assert "1 of 1 places are taken" in sentence(second.json())
        unread = await asking.post("/v1/verdicts", content=b"{")
        assert unread.status_code == 503
        first.cancel()
        await asyncio.wait([first])
        held.may.set()
        while "cuda_rl_judge_queue 0.0" not in (await asking.get("/metrics")).text:
            await asyncio.sleep(0.01)
        assert held.judged == ["first"]
        assert (await post("third")).json()["status"] == "compile_error"
        metrics = (await asking.get("/metrics")).text
        assert 'cuda_rl_verdicts_total{status="compile_error"} 2.0' in metrics


async def test_bodies_of_a_caller_are_read_few_at_a_time() -> None:
    app = JudgeServer(judge, Gate(None), queue=9).app
    go_on, statuses, reading = asyncio.Event(), list[int](), 0
    scope = {
        "type": "http", "method": "POST", "path": "/v1/verdicts", "query_string": b"",
        "headers": [], "http_version": "1.1", "scheme": "http", "root_path": "",
    }  # fmt: skip

    async def receive() -> Any:
        nonlocal reading
        reading += 1
        await go_on.wait()
        return {"type": "http.request", "body": b"{", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    asking = [asyncio.create_task(app(dict(scope), receive, send)) for _ in range(6)]
    await asyncio.sleep(0.2)
    assert reading == 4
    go_on.set()
    await asyncio.gather(*asking)
    assert statuses == [400] * 6

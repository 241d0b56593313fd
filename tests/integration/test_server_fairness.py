"""No caller takes the server from the others: by foreign code, nor by asking for much."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from coding_framework.data.registry import find_task
from coding_framework.deployment.server import CallersTasks
from coding_framework.deployment.tokens import TokenFile
from support.serving import RELU, ScriptedJudge, Upstream, answer, model_server
from support.time_bar import crowding
from support.waiting import until

pytestmark = pytest.mark.integration


class SleepingReader:
    """References that do nothing for so long, or until nobody waits for them."""

    def __init__(self, seconds: float = 45.0) -> None:
        self.seconds = seconds
        self.running = self.most = self.ended = 0
        self._lock = threading.Lock()

    def __call__(self, asked: dict[str, Any], gone: threading.Event) -> dict[str, Any]:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        gone.wait(self.seconds)
        with self._lock:
            self.running -= 1
            self.ended += 1
        return {"error": "it slept"}


def tokens_of(folder: Path, count: int) -> list[dict[str, str]]:
    """Headers of so many callers."""
    tokens = TokenFile(folder / "tokens")
    secrets = [tokens.create(["complete", "verify"])[1] for _ in range(count)]
    return [{"Authorization": f"Bearer {secret}"} for secret in secrets]


def chat(**options: Any) -> dict[str, Any]:
    return {
        "model": "kernels",
        "messages": [{"role": "user", "content": "a fast one"}],
        **({"cuda_rl": options} if options else {}),
    }


async def ready(client: httpx.AsyncClient) -> None:
    while (await client.get("/readyz")).status_code != 200:
        await asyncio.sleep(0.02)


async def test_sleeping_references_hold_up_nobody_and_end_with_their_clients(
    tmp_path: Path,
) -> None:
    reader = SleepingReader()
    sleeper, other, third = tokens_of(tmp_path, 3)
    upstream = Upstream(lambda body: "Hello.")
    with model_server(
        tmp_path, upstream, callers=CallersTasks(reader, ScriptedJudge()), references="sandboxed"
    ) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            await ready(client)
            foreign = chat(task=find_task("relu").model_dump(mode="json"))

            async def asks(headers: dict[str, str], body: Any) -> tuple[int, float]:
                started = time.monotonic()
                found = await client.post("/v1/chat/completions", json=body, headers=headers)
                return found.status_code, time.monotonic() - started

            sleeping = [asyncio.create_task(asks(sleeper, foreign)) for _ in range(8)]
            sleeping += [asyncio.create_task(asks(other, foreign)) for _ in range(2)]
            await asyncio.to_thread(until, lambda: reader.running == 2)
            ordinary = []
            for _ in range(60):
                ordinary.append(asyncio.create_task(asks(third, chat())))
                await asyncio.sleep(0.05)
            told = [await found for found in ordinary]
            assert {status for status, _ in told} == {200}
            assert np.quantile([seconds for _, seconds in told], 0.99) <= 1.0 * crowding()
            refused = [found.result()[0] for found in sleeping if found.done()]
            assert refused == [429] * 3  # one runs, four wait
            assert reader.most == 2  # one of each caller
            for found in sleeping:
                found.cancel()
            await asyncio.to_thread(until, lambda: reader.running == 0)


async def test_one_request_for_many_verdicts_makes_nobody_else_wait_long(tmp_path: Path) -> None:
    greedy, other = tokens_of(tmp_path, 2)
    upstream = Upstream(lambda body: answer(RELU))
    judge = ScriptedJudge(seconds=0.2)
    with model_server(tmp_path, upstream, judge) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            await ready(client)

            async def asks(headers: dict[str, str], **options: Any) -> httpx.Response:
                body = chat(task="relu", budget_s=20, **options)
                return await client.post("/v1/chat/completions", json=body, headers=headers)

            much = asyncio.create_task(asks(greedy, n=32, turns=8))
            while len(judge.asked) < 5:
                await asyncio.sleep(0.01)
            again = await asks(greedy, n=1, turns=1)
            assert (again.status_code, again.json()["error"]["type"]) == (429, "judge_busy")
            for _ in range(3):
                started = time.monotonic()
                found = await asks(other, n=1, turns=1)
                assert found.status_code == 200, found.text
                assert time.monotonic() - started < 2.0
            much.cancel()


def test_the_readers_process_ends_when_nobody_waits(tmp_path: Path) -> None:
    """The real reader, in its sandbox."""
    from coding_framework.cuda.sandbox import choose_sandbox
    from coding_framework.wiring import make_task_reader

    if choose_sandbox("auto").name == "native":
        pytest.skip("the only sandbox here is native")
    problem = find_task("relu").model_dump(mode="json")
    problem["reference"] = "import time\ntime.sleep(45)\n" + problem["reference"]
    gone, told = threading.Event(), list[str]()

    def read() -> None:
        try:
            make_task_reader()({"task": json.loads(json.dumps(problem))}, gone)
        except Exception as e:
            told.append(str(e))

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(1.0)
    started = time.monotonic()
    gone.set()
    thread.join(60)
    assert time.monotonic() - started < 15.0
    assert told == ["nobody waits for the reference any more"] or "does not start" in told[0]

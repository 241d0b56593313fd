"""References of callers: they hold up nobody else, and end with their clients."""

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
from coding_framework.deployment.chat import MOST_WAITING, REFERENCES_AT_ONCE
from coding_framework.deployment.server import CallersTasks
from support.serving import ScriptedJudge, Upstream, model_server
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
    upstream = Upstream(lambda body: "Hello.")
    with model_server(
        tmp_path, upstream, callers=CallersTasks(reader, ScriptedJudge()), references="sandboxed"
    ) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            await ready(client)
            foreign = chat(task=find_task("relu").model_dump(mode="json"))

            async def asks(body: Any) -> tuple[int, float]:
                started = time.monotonic()
                found = await client.post("/v1/chat/completions", json=body)
                return found.status_code, time.monotonic() - started

            many = REFERENCES_AT_ONCE + MOST_WAITING + 3
            sleeping = [asyncio.create_task(asks(foreign)) for _ in range(many)]
            await asyncio.to_thread(until, lambda: reader.running == REFERENCES_AT_ONCE)
            ordinary = []
            for _ in range(60):
                ordinary.append(asyncio.create_task(asks(chat())))
                await asyncio.sleep(0.05)
            told = [await found for found in ordinary]
            assert {status for status, _ in told} == {200}
            assert np.quantile([seconds for _, seconds in told], 0.99) <= 1.0 * crowding()
            refused = [found.result()[0] for found in sleeping if found.done()]
            assert refused == [429] * 3
            assert reader.most == REFERENCES_AT_ONCE
            for found in sleeping:
                found.cancel()
            await asyncio.to_thread(until, lambda: reader.running == 0)


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

"""Many pieces of work at once, up to a limit of number and of time."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from coding_framework.run import eval_sampling
from coding_framework.run.eval_sampling import run_limited

pytestmark = pytest.mark.unit


async def test_work_is_done_at_once_up_to_the_limit():
    now = most = 0

    async def work(number: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return number

    found = await run_limited({n: partial(work, n) for n in range(10)}, 4)
    assert most == 4
    assert sorted(found) == list(range(10))


async def test_after_the_time_to_begin_those_that_began_are_finished_in_their_order(monkeypatch):
    began: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: len(began) / 1000)  # a millisecond each
    monkeypatch.setattr(eval_sampling, "time", clock)

    async def work(number: int) -> int:
        began.append(number)
        await asyncio.sleep(0.001)
        return number

    found = await run_limited({n: partial(work, n) for n in range(500)}, 2, 0.1)
    assert 100 < len(found) < 105
    assert list(found.values()) == began == list(range(len(began)))

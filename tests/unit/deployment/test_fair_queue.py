"""Whose turn it is where several callers wait."""

from __future__ import annotations

import asyncio
import random

import pytest

from coding_framework.deployment.fair_queue import FairQueue

pytestmark = pytest.mark.unit


async def asked(queue: FairQueue, caller: str, seen: list[str], seconds: float = 0.0) -> None:
    async with queue.turn(caller):
        seen.append(caller)
        await asyncio.sleep(seconds)


async def test_a_caller_of_much_is_passed_by_who_comes_later() -> None:
    queue, seen = FairQueue(1), list[str]()
    many = [asyncio.create_task(asked(queue, "many", seen)) for _ in range(20)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(asked(queue, name, seen)) for name in ("a", "b", "a")]
    await asyncio.gather(*many, *few)
    assert sorted(seen[3:5]) == ["a", "b"]
    assert seen[5:7] == ["many", "a"]
    assert (queue.waiting, queue._lines) == (0, {})


async def test_one_caller_has_no_more_places_than_it_may() -> None:
    queue, running, most = FairQueue(4, most_of_one=1), 0, 0

    async def one() -> None:
        nonlocal running, most
        async with queue.turn("a"):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(one() for _ in range(6)))
    assert most == 1


async def test_whatever_is_cancelled_no_place_is_lost_and_each_caller_is_served() -> None:
    rng = random.Random(5)
    for _ in range(60):
        queue, seen, tasks = FairQueue(rng.randint(1, 3)), list[str](), list[asyncio.Task[None]]()
        for _ in range(40):
            seconds = rng.choice((0.0, 0.0005))
            tasks.append(asyncio.create_task(asked(queue, rng.choice("abc"), seen, seconds)))
            if rng.random() < 0.3:
                rng.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (queue.waiting, queue._lines) == (0, {})
        free = [asyncio.create_task(asked(queue, "d", seen, 0.001)) for _ in range(queue.places)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert queue.waiting == 0
        await asyncio.gather(*free)

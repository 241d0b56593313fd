"""Verdicts that are asked for again."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from coding_framework.deployment import verdict_jobs
from coding_framework.deployment.http import ApiError
from coding_framework.deployment.verdict_jobs import VerdictJobs
from coding_framework.errors import InfrastructureError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_jobs, "WAIT_S", 0.01)


async def number_of(jobs: VerdictJobs, work: Any) -> str:
    answer = await jobs.answer("me", work)
    assert answer.status_code == 202
    return str(orjson.loads(answer.body)["job"]).removeprefix("/v1/jobs/")


async def test_its_owner_alone_is_told_what_came_of_a_job() -> None:
    go = asyncio.Event()

    async def work() -> dict[str, Any]:
        await go.wait()
        return {"verdict": "right"}

    jobs = VerdictJobs()
    number = await number_of(jobs, work())
    assert jobs.told("me", number).status_code == 202
    with pytest.raises(ApiError, match="no job of yours"):
        jobs.told("somebody", number)
    go.set()
    while jobs.told("me", number).status_code == 202:
        await asyncio.sleep(0.01)
    assert orjson.loads(jobs.told("me", number).body) == {"status": "done", "verdict": "right"}


async def test_a_job_that_fails_by_our_fault_says_so() -> None:
    async def work() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        raise InfrastructureError("no nvcc is here: install it")

    jobs = VerdictJobs()
    number = await number_of(jobs, work())
    await asyncio.sleep(0.1)
    with pytest.raises(ApiError, match="install it") as failed:
        jobs.told("me", number)
    assert failed.value.status == 503


def test_an_unknown_job_is_none_of_yours() -> None:
    with pytest.raises(ApiError) as missing:
        VerdictJobs().told("me", "none")
    assert missing.value.status == 404


async def test_the_oldest_job_goes_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdict_jobs, "MOST", 1)
    jobs = VerdictJobs()
    first = await number_of(jobs, asyncio.Event().wait())
    second = await number_of(jobs, asyncio.Event().wait())
    await asyncio.sleep(0)
    with pytest.raises(ApiError):
        jobs.told("me", first)
    assert jobs.told("me", second).status_code == 202
    await asyncio.gather(*jobs.cancel(), return_exceptions=True)

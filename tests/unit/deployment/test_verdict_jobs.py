"""Verdicts that are asked for again, by whichever process is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
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


async def test_another_process_tells_what_came_of_a_job(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def work() -> dict[str, Any]:
        await go.wait()
        return {"verdict": "right"}

    one, other = VerdictJobs(tmp_path), VerdictJobs(tmp_path)
    number = await number_of(one, work())
    assert other.told("me", number).status_code == 202
    with pytest.raises(ApiError, match="no job of yours"):
        other.told("somebody", number)
    go.set()
    while other.told("me", number).status_code == 202:
        await asyncio.sleep(0.01)
    assert orjson.loads(other.told("me", number).body) == {"status": "done", "verdict": "right"}


async def test_a_job_that_fails_by_our_fault_says_so(tmp_path: Path) -> None:
    async def work() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        raise InfrastructureError("no nvcc is here: install it")

    jobs = VerdictJobs(tmp_path)
    number = await number_of(jobs, work())
    while "failure" not in orjson.loads((tmp_path / number).read_bytes()):
        await asyncio.sleep(0.01)
    with pytest.raises(ApiError, match="install it") as failed:
        jobs.told("me", number)
    assert failed.value.status == 503


async def test_a_job_of_a_process_that_ended_is_gone(tmp_path: Path) -> None:
    jobs = VerdictJobs(tmp_path)
    number = "0" * 32
    (tmp_path / number).write_bytes(orjson.dumps({"owner": "me", "process": 2**22 + 1}))
    with pytest.raises(ApiError, match="ended: ask again"):
        jobs.told("me", number)


@pytest.mark.parametrize("number", ["none", "../x", "0" * 32, "limits.sqlite"])
def test_an_unknown_job_is_none_of_yours(tmp_path: Path, number: str) -> None:
    (tmp_path / "limits.sqlite").write_text("not a job")
    with pytest.raises(ApiError) as missing:
        VerdictJobs(tmp_path).told("me", number)
    assert missing.value.status == 404


async def test_the_oldest_job_goes_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_jobs, "MOST", 1)
    jobs = VerdictJobs(tmp_path)
    first = await number_of(jobs, asyncio.Event().wait())
    second = await number_of(jobs, asyncio.Event().wait())
    await asyncio.sleep(0)
    with pytest.raises(ApiError):
        jobs.told("me", first)
    assert jobs.told("me", second).status_code == 202
    await asyncio.gather(*jobs.cancel(), return_exceptions=True)

"""Verdicts that take longer than their request waits: jobs that are asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

from fastapi.responses import Response

from coding_framework.deployment.http import ApiError, as_json
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.text import one_line

WAIT_S = 10.0
MOST = 256
"""Jobs that are remembered; the oldest goes."""
Job = asyncio.Task[dict[str, Any]]


class VerdictJobs:
    """The jobs of a server; they end with it."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[str, Job]] = {}
        """Owner and task, by number."""

    async def answer(self, owner: str, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
        """Start the work, and wait a little for it. owner: who may ask for it again."""
        number, job = uuid4().hex, asyncio.create_task(work)
        self._jobs[number] = owner, job
        while len(self._jobs) > MOST:
            _, oldest = self._jobs.pop(next(iter(self._jobs)))
            oldest.cancel()
        await asyncio.wait({job}, timeout=WAIT_S)
        if job.done():
            self._jobs.pop(number, None)
            return as_json({"status": "done", **job.result()})
        return _running(number)

    def told(self, owner: str, number: str) -> Response:
        """What came of a job. Raises ApiError."""
        whose, job = self._jobs.get(number, (None, None))
        if job is None or whose != owner:
            raise ApiError(404, "no_such_job", f"no job of yours is called {one_line(number, 40)}")
        if not job.done():
            return _running(number)
        error = None if job.cancelled() else job.exception()
        if error is None and not job.cancelled():
            return as_json({"status": "done", **job.result()})
        said = "the judge failed on this kernel: ask again"
        if isinstance(error, InfrastructureError | UsageError):
            said = one_line(str(error), 500)
        raise ApiError(503, "unavailable", said, retry_after_s=5.0)

    def cancel(self) -> list[Job]:
        """End what runs; await these."""
        jobs = [job for _, job in self._jobs.values()]
        for job in jobs:
            job.cancel()
        return jobs


def _running(number: str) -> Response:
    return as_json({"status": "running", "job": f"/v1/jobs/{number}"}, 202)

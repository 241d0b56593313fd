"""Verdicts that take longer than their request waits: jobs that are asked for again.

A job runs in the process that took it; what came of it lies in a folder that all processes of the
server see, so that any of them can tell.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import psutil
from fastapi.responses import Response

from coding_framework.deployment.http import ApiError, as_json
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import write_atomic

WAIT_S = 10.0
MOST = 256
"""Jobs of a process; the oldest goes."""
_NUMBER = re.compile(r"[0-9a-f]{32}")


class VerdictJobs:
    """The jobs of one process, and what is told of all of its server."""

    def __init__(self, folder: Path) -> None:
        """folder: of this run of the server."""
        self._folder = folder
        self._jobs: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def answer(self, owner: str, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
        """Start the work, and wait a little for it. owner: who may ask for it again."""
        number = uuid4().hex
        job = self._jobs[number] = asyncio.create_task(work)
        while len(self._jobs) > MOST:
            self._drop(next(iter(self._jobs)))
        try:
            await asyncio.wait({job}, timeout=WAIT_S)
        finally:
            if job.done():
                self._jobs.pop(number, None)
            else:
                self._write(number, {"owner": owner, "process": os.getpid()})
                job.add_done_callback(lambda done: self._keep(number, owner, done))
        return as_json({"status": "done", **job.result()}) if job.done() else _running(number)

    def told(self, owner: str, number: str) -> Response:
        """What came of a job. Raises ApiError."""
        found = self._read(number)
        if found is None or found["owner"] != owner:
            raise ApiError(404, "no_such_job", f"no job of yours is called {one_line(number, 40)}")
        if (failure := found.get("failure")) is not None:
            raise ApiError(503, "unavailable", failure, retry_after_s=5.0)
        if (result := found.get("result")) is not None:
            return as_json({"status": "done", **result})
        if not psutil.pid_exists(found["process"]):
            raise ApiError(503, "gone", "the process that judged it has ended: ask again")
        return _running(number)

    def cancel(self) -> list[asyncio.Task[dict[str, Any]]]:
        """End what runs; await these."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        return jobs

    def _keep(self, number: str, owner: str, done: asyncio.Task[dict[str, Any]]) -> None:
        kept: dict[str, Any] = {"owner": owner, "process": os.getpid()}
        if done.cancelled():
            kept["failure"] = "too many jobs came after this one: ask again"
        elif (error := done.exception()) is None:
            kept["result"] = done.result()
        elif isinstance(error, InfrastructureError | UsageError):
            kept["failure"] = one_line(str(error), 500)
        else:
            kept["failure"] = "the judge failed on this kernel: ask again"
        self._write(number, kept)

    def _drop(self, number: str) -> None:
        self._jobs.pop(number).cancel()
        (self._folder / number).unlink(missing_ok=True)

    def _write(self, number: str, kept: dict[str, Any]) -> None:
        if number in self._jobs:  # else it was dropped
            write_atomic(self._folder / number, orjson.dumps(kept))

    def _read(self, number: str) -> dict[str, Any] | None:
        if not _NUMBER.fullmatch(number):
            return None
        try:
            found: dict[str, Any] = orjson.loads((self._folder / number).read_bytes())
        except FileNotFoundError:
            return None
        return found


def _running(number: str) -> Response:
    return as_json({"status": "running", "job": f"/v1/jobs/{number}"}, 202)

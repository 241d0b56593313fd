"""The judge over HTTP: a task and a kernel in, a verdict out. For trainers that are not ours.

    POST /v1/verdicts    {"task": "relu", "code": "..."}, or {"kernels": [{"id", "task", "code"}]}

Guaranteed: at most `queue` kernels of a caller wait or are judged at a time, and who sends more is
told when to ask again (503); callers have their turns in round robin. A kernel that was taken is
judged to its end, also where its client goes away, and its verdict is kept in the judge's folder,
so that whoever asks again gets that verdict; a worker that dies costs one repetition. A task is
asked for by name, unless the caller's token has the scope `tasks:trusted`: a task of one's own
holds Python that the judge runs.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from prometheus_client import Counter as Counted
from pydantic import ValidationError

from coding_framework.cuda.build.diagnostics import too_long
from coding_framework.data.registry import find_task
from coding_framework.deployment.fair_queue import AHEAD, FairQueue
from coding_framework.deployment.http import (
    ApiError,
    Caller,
    Gate,
    as_json,
    make_app,
    read_object,
)
from coding_framework.deployment.metrics import JudgeMetrics
from coding_framework.errors import (
    CodingFrameworkError,
    InfrastructureError,
    UsageError,
    error_as_data,
    first_complaint,
)
from coding_framework.monitoring.text import one_line
from coding_framework.types import JudgeFn, Task, Verdict

MOST_KERNELS = 256
"""Of one request."""
MOST_BYTES = 32 << 20
"""Of a body: so many kernels of the longest that a judge takes."""
READ_AT_ONCE = 8
"""Bodies, of which one caller has half."""
MOST_NAME = 200
RETRY_S = 2.0
KEYS = {"id", "task", "code"}
FILES = (".py", ".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Asked:
    """One kernel of a request."""

    id: str
    task: Task
    code: str


class JudgeServer:
    """The application: `app` for uvicorn."""

    def __init__(self, judge: JudgeFn, gate: Gate, *, queue: int, workers: int = 1) -> None:
        """queue: kernels of one caller that wait or are judged at a time. workers: of the judge."""
        self._judge, self._gate, self._queue = judge, gate, queue
        self._turns = FairQueue(AHEAD * workers)
        self._reading = FairQueue(READ_AT_ONCE, READ_AT_ONCE // 2)
        self._taken: Counter[str] = Counter()
        self._jobs: set[asyncio.Task[Verdict]] = set()
        self._metrics = JudgeMetrics("Kernels that wait or are judged.")
        self._faults = Counted(
            "cuda_rl_judge_faults", "Kernels without a verdict, by our fault.",
            registry=self._metrics.registry,
        )  # fmt: skip
        self._metrics.judge_queue.set_function(self._taken.total)
        self.app: FastAPI = make_app("judge", gate, self._metrics)
        self.app.add_api_route("/v1/verdicts", self._answer, methods=["POST"])

    async def _answer(self, request: Request) -> Response:
        caller = self._gate.caller(request, "verify")
        self._require_room(caller.id, 1)
        async with self._reading.turn(caller.id):
            body = await read_object(request, MOST_BYTES)
            many = "kernels" in body
            asked = await asyncio.to_thread(_read_all, body, caller)
        self._require_room(caller.id, len(asked))
        jobs = [self._start(caller.id, self._one(caller.id, each)) for each in asked]
        done = await asyncio.gather(*map(asyncio.shield, jobs), return_exceptions=True)
        if not many:
            return as_json(_verdict_of(done[0]))
        results = [_result(each.id, found) for each, found in zip(asked, done, strict=True)]
        return as_json({"results": results})

    def _require_room(self, caller: str, kernels: int) -> None:
        """Raises ApiError 413 where the queue can never hold them, 503 where it cannot now."""
        if kernels > self._queue:
            raise ApiError(
                413, "too_many", f"this server takes {self._queue} kernels at a time: send fewer"
            )
        if self._taken[caller] + kernels > self._queue:
            raise ApiError(
                503,
                "busy",
                f"{self._taken[caller]} of {self._queue} places are taken: wait and ask again",
                retry_after_s=RETRY_S,
            )

    def _start(self, caller: str, work: Coroutine[Any, Any, Verdict]) -> asyncio.Task[Verdict]:
        """A job that its client's going does not end."""
        self._taken[caller] += 1
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(partial(self._ended, caller))
        return job

    def _ended(self, caller: str, job: asyncio.Task[Verdict]) -> None:
        self._taken[caller] -= 1
        self._taken = +self._taken
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # seen, also where no client is left

    async def _one(self, caller: str, asked: Asked) -> Verdict:
        started = time.monotonic()
        try:
            at_once = too_long(asked.code) is not None  # nothing is compiled
            async with nullcontext() if at_once else self._turns.turn(caller):
                verdict = await self._judge(asked.task, asked.code)
        except Exception:
            self._faults.inc()
            raise
        self._metrics.judged(verdict, time.monotonic() - started)
        return verdict


# --- what is asked --------------------------------------------------------------------------------


def _read_all(body: Mapping[str, Any], caller: Caller) -> list[Asked]:
    """Raises ApiError and UsageError, before anything is judged."""
    kernels = body.get("kernels", [body])
    if not isinstance(kernels, list) or not kernels:
        raise ApiError(400, "wrong_use", '"kernels" must be a list with at least one kernel')
    if len(kernels) > MOST_KERNELS:
        raise ApiError(413, "too_many", f"a request holds at most {MOST_KERNELS} kernels")
    asked = [_read(number, each, caller) for number, each in enumerate(kernels)]
    if len({each.id for each in asked}) < len(asked):
        raise ApiError(400, "wrong_use", 'two kernels have the same "id": make them unique')
    return asked


def _read(number: int, given: Any, caller: Caller) -> Asked:
    fields = given if isinstance(given, dict) else {}
    name, code = fields.get("id", str(number)), fields.get("code")
    if not {"task", "code"} <= set(fields) <= KEYS or not isinstance(code, str | None):
        raise ApiError(
            400, "wrong_use", f'kernel {number}: give "task" and "code", and an "id" if you like'
        )
    if code is None or not isinstance(name, str):
        raise ApiError(400, "wrong_use", f'kernel {number}: "code" and "id" must be texts')
    return Asked(name, _task(fields["task"], caller), code)


def _task(given: Any, caller: Caller) -> Task:
    """Raises ApiError and UsageError."""
    if isinstance(given, str):
        if "/" in given or given.endswith(FILES):
            raise ApiError(
                400, "wrong_use", "a file cannot be named here: send the task's fields instead"
            )
        if len(given) > MOST_NAME or not given.isprintable():
            raise ApiError(400, "wrong_use", f"no task is called {one_line(given, 60)!r}")
        return _task_of_name(given)
    if not isinstance(given, dict):
        raise ApiError(400, "wrong_use", '"task" must be a name, or an object with its fields')
    if "tasks:trusted" not in caller.scopes:
        raise ApiError(
            403,
            "missing_scope",
            "a task of your own runs Python in the judge: this needs a token with the scope "
            "tasks:trusted; a name needs none",
        )
    try:
        return Task.model_validate(given)
    except ValidationError as e:
        raise UsageError(f"the task cannot be used: {first_complaint(e, '')}") from e


@lru_cache(maxsize=1024)
def _task_of_name(name: str) -> Task:
    return find_task(name)


# --- what is answered -----------------------------------------------------------------------------


def _verdict_of(found: Verdict | BaseException) -> dict[str, Any]:
    if isinstance(found, BaseException):
        raise found
    return found.model_dump(mode="json")


def _result(name: str, found: Verdict | BaseException) -> dict[str, Any]:
    """A kernel's part of a batch: its verdict, or why there is none."""
    if isinstance(found, Verdict):
        return {"id": name, "verdict": found.model_dump(mode="json")}
    if isinstance(found, CodingFrameworkError):
        return {"id": name, "error": error_as_data(found)["message"]}
    if isinstance(found, Exception):
        return {"id": name, "error": "the judge failed on this kernel: ask again"}
    raise InfrastructureError("the server is stopping: ask again") from found

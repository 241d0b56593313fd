"""Many verdicts at once: worker processes of ours, each with a `Judge` of its own.

Guaranteed: at most `workers` candidates are judged at a time; waiting counts for nobody; a worker
that dies costs its job one repetition on a new worker, then InfrastructureError, never a verdict;
`close` leaves no process; the same candidate gets the same verdict from every worker, idle or
loaded, since all share one secret and no limit on a candidate is wall time.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from coding_framework.cuda.build.diagnostics import too_long
from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.device import wire
from coding_framework.cuda.device.gpu_sharing import ROOM_BYTES, gpus, in_quarantine
from coding_framework.cuda.device.rough_need import roughly_needed_bytes
from coding_framework.cuda.judge import JudgeConfig, secret_of, with_secret
from coding_framework.cuda.many.coalesce import Coalescer
from coding_framework.cuda.many.compile_ahead import CompileAhead
from coding_framework.cuda.many.turns import Turns
from coding_framework.cuda.many.verdict_cache import VerdictCache, comes_again, conditions_of
from coding_framework.cuda.toolchain.slots import available_cores
from coding_framework.errors import InfrastructureError, raise_reported
from coding_framework.monitoring.judge_watch import Job as WatchedJob
from coding_framework.monitoring.judge_watch import JudgeWatch
from coding_framework.registry.templates import MadeTemplates
from coding_framework.store.events import log
from coding_framework.types import (
    BackendName,
    Candidate,
    Probe,
    ProbeResult,
    Status,
    Task,
    Verdict,
)

T = TypeVar("T")


_START_S = 120.0
_RETRIES = 1


_WAITING_BYTES = 3 << 29
"""Of a GPU's memory: what a judge holds that waits for more. Contexts were 1.1 to 1.3 GiB on an
H100, of which the driver keeps 0.5 GiB to itself."""


def judges_at_once(workers: int, backend: BackendName) -> int:
    """So many judges, or as many as the memory of the GPUs has rooms for."""
    if backend != "cuda":
        return workers
    most = max(1, sum(gpu.memory_bytes // ROOM_BYTES for gpu in gpus()))
    if workers > most:
        log.warning("fewer_judges", workers=most, asked_for=workers, why="memory of the GPUs")
    return min(workers, most)


def most_beside(judges: int) -> float:
    """Bytes of a GPU's memory that one of so many judges may fill while the others wait."""
    here = gpus()
    each = -(-judges // max(1, len(here)))
    memory = min((gpu.memory_bytes for gpu in here), default=math.inf)
    return memory - (each - 1) * _WAITING_BYTES


class JudgePool:
    """A bounded pool of judges; `judge` satisfies `types.JudgeFn`. Use from any event loop."""

    def __init__(
        self,
        config: JudgeConfig | None = None,
        *,
        workers: int | None = None,
        job_wall_s: float = 900.0,
        cache_folder: Path | None = None,
        cache_bytes: int | None = None,
        told_to: Path | None = None,
    ) -> None:
        """workers: default one a core, and never more than a GPU's memory has rooms for.
        job_wall_s: backstop on one job, our fault when reached.
        cache_folder: where verdicts are kept, for judges of the same configuration and secret,
        and equal candidates that are here at the same time are judged once; None: nowhere, and each
        is judged anew. cache_bytes: of that folder at most; None: any number. told_to: the run
        in whose judge.jsonl the pool says what it does; None: it says nothing."""
        self.config = with_secret(config or JudgeConfig())
        self._backend = choose_backend(self.config.backend)
        self._job_wall_s = job_wall_s
        self._cache_folder, self._cache_bytes = cache_folder, cache_bytes
        self._setup = _setup_frame(self.config)
        self.capacity = judges_at_once(workers or available_cores(), self._backend)
        """Candidates at a time."""
        self._threads = ThreadPoolExecutor(self.capacity, thread_name_prefix="judge")
        self._most_beside, self._large_threads = math.inf, self._threads
        if self._backend == "cuda":
            self._most_beside = most_beside(self.capacity)
            self._large_threads = ThreadPoolExecutor(max(1, len(gpus())), "judge of large work")
        self._turns = Turns(self._end_workers)
        self._equal_jobs = Coalescer[Verdict](comes_again)
        self._waiting = CompileAhead(self.capacity)
        self._watch = JudgeWatch(told_to, self.capacity, self._quarantined)
        self._own = threading.local()
        self._started: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    async def judge(self, task: Task, code: str) -> Verdict:
        """The verdict on one candidate. Raises InfrastructureError on a fault of ours."""
        return await asyncio.wrap_future(self._submit(task, code))

    __call__ = judge

    def judge_blocking(self, task: Task, code: str) -> Verdict:
        """As `judge`, for callers without an event loop."""
        return self._submit(task, code).result()

    async def probe(
        self, task: Task, code: str, probes: tuple[Probe, ...]
    ) -> tuple[ProbeResult, ...]:
        """What comes of a tester's probes (`types.ProbeFn`). Raises InfrastructureError on a fault
        of ours."""
        job = {**_job(task, code), "probes": [p.model_dump(mode="json") for p in probes]}
        answer = await asyncio.wrap_future(self._work(task, self._ask_retrying, job))
        return tuple(ProbeResult.model_validate(found) for found in answer["probed"])

    async def templates(self, task: Task, code: str) -> MadeTemplates:
        """The launch templates of a kernel. Raises as `Judge.templates` does."""
        return await asyncio.to_thread(self.templates_blocking, task, code)

    def templates_blocking(self, task: Task, code: str) -> MadeTemplates:
        """As `templates`, for callers without an event loop."""
        job = {**_job(task, code), "templates": True}
        return MadeTemplates.model_validate(
            self._work(task, self._ask_retrying, job).result()["templates"]
        )

    def _submit(self, task: Task, code: str) -> Future[Verdict]:
        if (reason := too_long(code)) is not None:  # megabytes would go through every process
            told: Future[Verdict] = Future()
            told.set_result(self._refused(task, code, reason))
            return told
        start = partial(self._enqueue, task, code)
        if self._cache_folder is None:
            return start()
        return self._equal_jobs.submit((task.model_dump_json(), code), start)

    def _refused(self, task: Task, code: str, reason: str) -> Verdict:
        return Verdict(
            status=Status.COMPILE_ERROR,
            reason=reason,
            task=task.name,
            candidate_sha256=Candidate.model_construct(code=code).sha256,
            backend=self._backend,
        )

    def _enqueue(self, task: Task, code: str) -> Future[Verdict]:
        number, watched = self._waiting.join(code), self._watch.join()

        def leave(_: object = None) -> None:
            self._waiting.leave(number)
            self._watch.leave(watched)

        try:
            job = self._work(task, self._judge_next, number, watched, task, code)
        except InfrastructureError:
            leave()
            raise
        job.add_done_callback(leave)  # it may be cancelled
        return job

    def _judge_next(self, number: int, watched: WatchedJob, task: Task, code: str) -> Verdict:
        self._watch.began(watched)
        try:
            with self._waiting.judging(number):
                verdict, known = self._judge_here(task, code)
        except InfrastructureError:
            self._watch.failed()
            raise
        self._watch.ended(watched, verdict, known=known)
        return verdict

    def _work(self, task: Task, job: Callable[..., T], *arguments: Any) -> Future[T]:
        """In one of the pool's threads, each of which has a worker of its own. What takes so much
        of a GPU's memory that no others may keep theirs meanwhile has threads and turns of its
        own."""
        large = self._is_large(task)

        def in_turn() -> T:
            with self._turns.turn(large=large):
                return job(*arguments)

        done = self._turns.expect(large=large)
        try:
            work = (self._large_threads if large else self._threads).submit(in_turn)
        except RuntimeError as e:
            done(None)
            raise InfrastructureError("the judge pool is closed: make a new one") from e
        work.add_done_callback(done)
        return work

    def _is_large(self, task: Task) -> bool:
        return self._backend == "cuda" and roughly_needed_bytes(task) > self._most_beside

    def _end_workers(self) -> None:
        """Give back what they hold of the GPUs; none of them works."""
        with self._lock:
            ended = list(self._started)
            self._started.clear()
        for worker in ended:
            worker.kill()

    def _judge_here(self, task: Task, code: str) -> tuple[Verdict, bool]:
        """The verdict, and whether it was known before."""
        candidate = Candidate.model_construct(code=code)
        if self._cache is not None:  # raises where there is no toolkit, as judging would
            found = self._cache.get(task, candidate, self._backend)
            if found is not None:
                return found, True
        job = _job(task, code)
        if self._backend == "cuda":  # where a judge waits for its GPU much of the time
            job["ahead"] = self._waiting.coming()
        verdict = Verdict.model_validate(self._ask_retrying(job)["verdict"])
        if self._cache is not None and comes_again(verdict):
            self._cache.put(task, candidate, verdict)
        return verdict, False

    def _quarantined(self) -> tuple[str, ...]:
        if self._backend != "cuda":
            return ()
        return tuple(gpu.uuid for gpu in gpus() if in_quarantine(gpu))

    @cached_property
    def _cache(self) -> VerdictCache | None:
        if self._cache_folder is None:
            return None
        return VerdictCache(self._cache_folder, conditions_of(self.config), self._cache_bytes)

    def close(self) -> None:
        """End every worker now. Jobs in flight raise InfrastructureError."""
        with self._lock:
            self._closed = True
        self._end_workers()
        for threads in (self._threads, self._large_threads):
            threads.shutdown(wait=True, cancel_futures=True)
        self._watch.close()

    def __enter__(self) -> JudgePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _ask_retrying(self, job: dict[str, Any]) -> dict[str, Any]:
        """This thread's worker's answer to a job."""
        for attempt in range(_RETRIES + 1):
            try:
                answer = self._worker().ask(job, self._job_wall_s)
                raise_reported(answer)
                return answer
            except _WorkerDiedError as e:
                self._drop_worker()
                if self._closed:
                    raise InfrastructureError("the judge pool was closed meanwhile") from e
                log.warning(
                    "judge_worker_died", task=job["task"]["name"], why=str(e), attempt=attempt
                )
                reason = str(e)
        raise InfrastructureError(
            f"the judge of task {job['task']['name']!r} died twice ({reason}): try again"
        )

    def _worker(self) -> _Worker:
        """This thread's worker, started where there is none. Raises _WorkerDiedError."""
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None or not worker.alive:
            with self._lock:
                if self._closed:
                    raise InfrastructureError("the judge pool is closed: make a new one")
                worker = _Worker()
                self._started.add(worker)
            self._own.worker = worker
            raise_reported(worker.ask(self._setup, _START_S))
        return worker

    def _drop_worker(self) -> None:
        """End this thread's worker; the next job starts another."""
        worker: _Worker = self._own.worker
        worker.kill()
        with self._lock:
            self._started.discard(worker)
        self._own.worker = None


class _WorkerDiedError(Exception):
    """A worker ended, or went silent, before it answered."""


class _Worker:
    """One worker process and the socket to it."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "coding_framework.cuda.many.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is its pool's to handle
            )
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: dict[str, Any], wall_s: float) -> dict[str, Any]:
        """Send one message, wait for its answer. Raises _WorkerDiedError."""
        try:
            self._connection.settimeout(max(wall_s, 0.001))  # 0 would not wait at all
            wire.send(self._connection, message)
            answer: dict[str, Any] = wire.receive(self._connection, 0)
            return answer
        except TimeoutError as e:
            raise _WorkerDiedError(f"no answer within {wall_s:.0f} s") from e
        except (OSError, EOFError, ValueError) as e:
            raise _WorkerDiedError(self._how_it_ended()) from e

    def kill(self) -> None:
        """End the process; its sandboxes and devices end with it."""
        with self._lock:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._connection.close()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        return f"signal {-code}" if code < 0 else f"exit status {code}"


def _job(task: Task, code: str) -> dict[str, Any]:
    return {"task": task.model_dump(mode="json"), "code": code}


def _setup_frame(config: JudgeConfig) -> dict[str, Any]:
    """What a worker needs to judge exactly as its siblings do: one secret for all."""
    return {
        "config": config.model_dump(mode="json", exclude={"secret"}),
        "secret": secret_of(config).hex(),
    }

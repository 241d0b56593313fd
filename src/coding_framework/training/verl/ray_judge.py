"""Many verdicts at once on many machines: a judge on each node of a Ray cluster.

The same interface as the judge pool of one machine. Guaranteed: at most `capacity` candidates are
with the nodes at a time, all other callers wait; a job that is lost, with its node or with the
process that judged it, is judged again once, on whatever node there is then; a second loss, or no
verdict within the wall limit, is InfrastructureError, never a verdict; all nodes draw alike, so a
candidate gets the same verdict from each; `close` leaves no process.

Ray restarts lost judges and repeats lost jobs (`max_restarts`, `max_task_retries`). What a judge is
comes as an import path, since training does not import it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import ray
import structlog
from ray.exceptions import RayError

from coding_framework.errors import InfrastructureError, error_as_data, raise_reported
from coding_framework.training.verl.spec import build
from coding_framework.types import Task, Verdict

log = structlog.get_logger(__name__)

_CLOSED = "the judge pool is closed: make a new one"


class _NodeJudge:
    """The actor: a judge on its node. Errors go back as data, so that their class survives."""

    def __init__(self, factory: str, arguments: Mapping[str, Any]) -> None:
        self._judge = build(factory, **arguments)

    async def judge(self, task: Task, code: str) -> Verdict | dict[str, str]:
        try:
            verdict: Verdict = await self._judge(task, code)
        except Exception as e:  # the boundary: the pool raises it again on its side
            return error_as_data(e)
        return verdict

    def process(self) -> int:
        """Number of the process on its node; the first call waits until the judge is made."""
        return os.getpid()


@dataclass(slots=True, eq=False)
class _Node:
    """One actor and how many jobs it has."""

    actor: Any
    jobs: int = 0


class RayJudgePool:
    """A bounded pool of judges on a Ray cluster; `judge` satisfies `types.JudgeFn`. Use from any
    event loop or thread."""

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        address: str | None = None,
        nodes: int | None = None,
        jobs_per_node: int | None = None,
        job_wall_s: float = 1800.0,
    ) -> None:
        """factory: "module:callable" that makes a judge of `arguments` on each node; give it a
        secret or a seed, so that all draw alike.
        address: of the cluster to join where this process is in none; None: one of this machine.
        nodes: default all that have processors. jobs_per_node: default the fewest processors of a
        node. job_wall_s: backstop on one job with its repetition, our fault when reached."""
        self._ours = not ray.is_initialized()
        if self._ours:
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        processors = [
            int(n["Resources"]["CPU"])
            for n in ray.nodes()
            if n["Alive"] and n["Resources"].get("CPU", 0) >= 1
        ]
        if not processors:
            raise InfrastructureError("the Ray cluster has no processors: add a node, try again")
        jobs = jobs_per_node or min(processors)
        actor = ray.remote(_NodeJudge).options(
            num_cpus=jobs,
            max_concurrency=jobs + 1,
            max_restarts=-1,
            max_task_retries=1,
            scheduling_strategy="SPREAD",
        )
        count = nodes or len(processors)
        self._nodes = [_Node(actor.remote(factory, dict(arguments or {}))) for _ in range(count)]
        self._job_wall_s = job_wall_s
        self.capacity = jobs * count
        """Jobs at a time."""
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(self.capacity)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def judge(self, task: Task, code: str) -> Verdict:
        """The verdict on one candidate. Raises InfrastructureError on a fault of ours."""
        return await asyncio.wrap_future(self._submit(self._judge_somewhere(task, code)))

    __call__ = judge

    def judge_blocking(self, task: Task, code: str) -> Verdict:
        """As `judge`, for callers without an event loop."""
        return self._submit(self._judge_somewhere(task, code)).result()

    def close(self) -> None:
        """End every judge now. Jobs in flight raise InfrastructureError."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for node in self._nodes:
            with suppress(RayError):
                ray.kill(node.actor)
        if self._ours:
            ray.shutdown()

    def __enter__(self) -> RayJudgePool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # --- in the pool's own thread -----------------------------------------------------------------

    def _submit(self, job: Coroutine[Any, Any, Verdict]) -> Future[Verdict]:
        if self._closed:
            job.close()
            raise InfrastructureError(_CLOSED)
        return asyncio.run_coroutine_threadsafe(job, self._loop)

    async def _judge_somewhere(self, task: Task, code: str) -> Verdict:
        try:
            async with self._slots:
                return await self._judge_on(min(self._nodes, key=lambda n: n.jobs), task, code)
        except asyncio.CancelledError:
            if self._closed:
                raise InfrastructureError(_CLOSED) from None
            raise

    async def _judge_on(self, node: _Node, task: Task, code: str) -> Verdict:
        node.jobs += 1
        job = node.actor.judge.remote(task, code)
        try:
            async with asyncio.timeout(self._job_wall_s):
                answer = await job
        except TimeoutError as e:
            log.warning("node_judge_silent", task=task.name, limit_s=self._job_wall_s)
            ray.cancel(job)  # or Ray would repeat it
            ray.kill(node.actor, no_restart=False)  # what else it has is judged again
            raise InfrastructureError(
                f"no node gave a verdict on task {task.name!r} within {self._job_wall_s:.0f} s: "
                "look at the cluster, and try again"
            ) from e
        except RayError as e:
            raise InfrastructureError(
                f"a candidate of task {task.name!r} was lost twice with the process that judged it "
                f"({type(e).__name__}): try again"
            ) from e
        finally:
            node.jobs -= 1
        if isinstance(answer, Verdict):
            return answer
        raise_reported(answer)
        raise InfrastructureError(f"a judge answered with neither verdict nor error: {answer!r}")


async def _cancel_all() -> None:
    """Cancel every job of the loop that this runs in, and wait for their ends."""
    jobs = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)

"""Many verdicts at once on many machines: a judge on each of the nodes of a Ray cluster.

The same interface as the judge pool of one machine. Guaranteed: a bounded number of candidates is
with the nodes at a time, all other callers wait; a job that is lost, with its node or with the
process that worked on it, is done again once; a second loss, or no verdict within the wall limit,
is InfrastructureError, never a verdict; all nodes draw alike, so a candidate gets the same verdict
from each; `close` leaves no process.

What a judge is comes as an import path, since training does not import it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Self

from coding_framework.errors import InfrastructureError
from coding_framework.training.verl.ray_actors import ActorGroup
from coding_framework.training.verl.ray_cluster import connect, disconnect, judging_layout
from coding_framework.types import Task, Verdict

_CLOSED = "the judge pool is closed: make a new one"
_WALL_S = 1800.0


class RayJudgePool:
    """A judge on each node. `judge` satisfies `types.JudgeFn`; jobs wait in a thread with an event
    loop. Use from any event loop or thread."""

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        leave: bool = False,
        nodes: int | None = None,
        jobs_per_node: int | None = None,
        job_wall_s: float = _WALL_S,
        resource: str | None = None,
    ) -> None:
        """Starts the judges, on a cluster of this machine where this process is in none.

        factory: "module:callable" that makes a judge of `arguments` on each node; give it a
        secret or a seed, so that all draw alike.
        leave: the cluster that this process is in, when the pool is closed.
        nodes: default all that have room. jobs_per_node: default what the least of them takes.
        job_wall_s: backstop on one job, our fault when reached. resource: judge on the nodes that
        have this Ray resource alone, a unit of it for each job; None: a processor for each.
        Raises UsageError for more jobs than a node takes, InfrastructureError where the cluster
        does not answer or a judge does not start."""
        joined = connect(None)
        self._leave = leave or joined
        try:
            layout = judging_layout(jobs_per_node, nodes, resource)
            self._judges = ActorGroup(factory, dict(arguments or {}), layout, wall_s=job_wall_s)
        except BaseException:
            if joined:
                disconnect()
            raise
        self.capacity = self._judges.capacity
        """Candidates that are with the nodes at a time."""
        self._closed = False
        self._loop = asyncio.new_event_loop()
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
        self._judges.close()
        if self._leave:
            disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, job: Coroutine[Any, Any, Verdict]) -> Future[Verdict]:
        if self._closed:
            job.close()
            raise InfrastructureError(_CLOSED)
        return asyncio.run_coroutine_threadsafe(job, self._loop)

    async def _judge_somewhere(self, task: Task, code: str) -> Verdict:
        """In the pool's own thread."""
        try:
            answer = await self._judges.call(task.name, "__call__", task, code)
        except asyncio.CancelledError:
            if self._closed:
                raise InfrastructureError(_CLOSED) from None
            raise
        if not isinstance(answer, Verdict):
            raise InfrastructureError(
                f"a judge answered with neither verdict nor error: {answer!r}"
            )
        return answer


async def _cancel_all() -> None:
    """Cancel every job of the loop that this runs in, and wait for their ends."""
    jobs = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)

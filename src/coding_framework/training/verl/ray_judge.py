"""Many verdicts at once on many machines: judges on the nodes of a Ray cluster.

The same interface as the judge pool of one machine. `RayJudgePool` has a whole judge on each node;
`SplitRayJudgePool` has one half on nodes that compile and the other on nodes with GPUs, so that
these compile nothing. Guaranteed: a bounded number of candidates is with the nodes at a time, all
other callers wait; a job that is lost, with its node or with the process that worked on it, is done
again once, and of two halves the lost one alone; a second loss, or no verdict within the wall
limit, is InfrastructureError, never a verdict; all nodes draw alike, so a candidate gets the same
verdict from each; `close` leaves no process.

What a judge is comes as an import path, since training does not import it.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self

import ray

from coding_framework.errors import InfrastructureError
from coding_framework.training.verl.ray_actors import ActorGroup
from coding_framework.training.verl.ray_cluster import (
    bench_layout,
    compiling_layout,
    connect,
    disconnect,
    judging_layout,
)
from coding_framework.types import Task, Verdict

_CLOSED = "the judge pool is closed: make a new one"
_WALL_S = 1800.0
_TRIES = 2
"""For a build that arrives damaged."""


class _Pool(ABC):
    """What both pools share: a thread with an event loop, where jobs wait. `judge` satisfies
    `types.JudgeFn`. Use from any event loop or thread."""

    def __init__(self, leave: bool) -> None:
        """Starts the actors, on a cluster of this machine where this process is in none. leave: the
        cluster that it is in, when the pool is closed."""
        joined = connect(None)
        self._leave = leave or joined
        self._groups: list[ActorGroup] = []
        try:
            self.capacity = self._start()
            """Candidates that are with the nodes at a time."""
        except BaseException:
            for group in self._groups:
                group.close()
            if joined:
                disconnect()
            raise
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @abstractmethod
    def _start(self) -> int:
        """Start the actors, each group noted in `_groups` at once; gives the capacity."""

    @abstractmethod
    async def _judge_somewhere(self, task: Task, code: str) -> Verdict:
        """The verdict, from the nodes; in the pool's own thread."""

    async def judge(self, task: Task, code: str) -> Verdict:
        """The verdict on one candidate. Raises InfrastructureError on a fault of ours."""
        return await asyncio.wrap_future(self._submit(self._judge_or_say_closed(task, code)))

    __call__ = judge

    def judge_blocking(self, task: Task, code: str) -> Verdict:
        """As `judge`, for callers without an event loop."""
        return self._submit(self._judge_or_say_closed(task, code)).result()

    def close(self) -> None:
        """End every judge now. Jobs in flight raise InfrastructureError."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for group in self._groups:
            group.close()
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

    async def _judge_or_say_closed(self, task: Task, code: str) -> Verdict:
        try:
            return await self._judge_somewhere(task, code)
        except asyncio.CancelledError:
            if self._closed:
                raise InfrastructureError(_CLOSED) from None
            raise


class RayJudgePool(_Pool):
    """A judge on each node."""

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
        """factory: "module:callable" that makes a judge of `arguments` on each node; give it a
        secret or a seed, so that all draw alike.
        leave: the cluster that this process is in, when the pool is closed.
        nodes: default all that have room. jobs_per_node: default what the least of them takes.
        job_wall_s: backstop on one job, our fault when reached. resource: judge on the nodes that
        have this Ray resource alone, a unit of it for each job; None: a processor for each.
        Raises UsageError for more jobs than a node takes, InfrastructureError where the cluster
        does not answer or a judge does not start."""
        self._factory, self._arguments = factory, dict(arguments or {})
        self._wanted = (jobs_per_node, nodes, resource)
        self._wall_s = job_wall_s
        super().__init__(leave)

    def _start(self) -> int:
        layout = judging_layout(*self._wanted)
        self._judges = ActorGroup(self._factory, self._arguments, layout, wall_s=self._wall_s)
        self._groups.append(self._judges)
        return self._judges.capacity

    async def _judge_somewhere(self, task: Task, code: str) -> Verdict:
        return _verdict(await self._judges.call(task.name, "__call__", task, code))


@dataclass(frozen=True, slots=True)
class Part:
    """One half of a judge, as an import path: it is made on its nodes."""

    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class SplitRayJudgePool(_Pool):
    """One half of the judge on nodes that compile, the other on nodes with the resource
    `bench_gpu`, an actor a unit."""

    def __init__(
        self,
        compiling: Part,
        judging: Part,
        *,
        leave: bool = False,
        jobs_per_gpu: int | None = None,
        in_hand: int | None = None,
    ) -> None:
        """compiling: makes a thing with `compile(task, code, wanted)`, of its arguments and
        `conditions`: a verdict, or a build. judging: makes a thing with `conditions()`, alike on
        all nodes, and `judge(task, code, *builds)`, of its arguments and `workers`: a verdict, or
        what else it wants to have compiled, which can be hashed.
        jobs_per_gpu: candidates that a GPU has at a time; default what the processors of its node
        allow. in_hand: candidates that are compiled, wait for a GPU, or are judged: what one has to
        wait is bounded, and so is the memory for builds; default as many as can be worked on, and
        for each place on a GPU one that waits. Raises as `RayJudgePool` does."""
        self._compiling, self._judging = compiling, judging
        self._jobs_per_gpu = jobs_per_gpu
        self._wanted_in_hand = in_hand
        super().__init__(leave)
        self._in_hand = asyncio.Semaphore(self.capacity)

    def _start(self) -> int:
        layout = bench_layout(self._jobs_per_gpu)
        arguments = {**self._judging.arguments, "workers": layout.places}
        self._benches = ActorGroup(self._judging.factory, arguments, layout, wall_s=_WALL_S)
        self._groups.append(self._benches)
        conditions, *others = self._benches.ask_all("conditions")
        for other in others:
            if other != conditions:
                raise InfrastructureError(
                    f"the nodes with GPUs differ ({conditions} and {other}): give the resource "
                    "bench_gpu to those of one kind"
                )
        self._compilers = ActorGroup(
            self._compiling.factory,
            {**self._compiling.arguments, "conditions": conditions},
            compiling_layout(),
            does="compiled",
            wall_s=_WALL_S,
        )
        self._groups.append(self._compilers)
        return self._wanted_in_hand or self._compilers.capacity + 2 * self._benches.capacity

    async def _judge_somewhere(self, task: Task, code: str) -> Verdict:
        async with self._in_hand:
            builds: dict[Any, ray.ObjectRef[Any]] = {}
            asked: Counter[Any] = Counter()
            wanted = None
            while asked[wanted] < _TRIES:
                asked[wanted] += 1
                built = await self._compilers.call(task.name, "compile", task, code, wanted)
                if isinstance(built, Verdict):
                    return built
                builds[wanted] = ray.put(built)  # of this process: no node's end takes it away
                sent = builds.values()
                answer = await self._benches.call(task.name, "judge", task, code, *sent)
                if isinstance(answer, Verdict):
                    return answer
                wanted = answer
        raise InfrastructureError(
            f"a build for task {task.name!r} arrived damaged more than once: look at the nodes' "
            "memory and network, and try again"
        )


def _verdict(answer: Any) -> Verdict:
    if not isinstance(answer, Verdict):
        raise InfrastructureError(f"a judge answered with neither verdict nor error: {answer!r}")
    return answer


async def _cancel_all() -> None:
    """Cancel every job of the loop that this runs in, and wait for their ends."""
    jobs = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)

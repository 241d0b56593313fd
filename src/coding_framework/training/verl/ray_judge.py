"""Many verdicts at once on many machines: a judge on each node of a Ray cluster.

The same interface as the judge pool of one machine. Guaranteed: at most `capacity` candidates are
with the nodes at a time, all other callers wait; a job that is lost, with its node or with the
process that judged it, is judged again once, by whatever judge has room then; a second loss, or no
verdict within the wall limit, is InfrastructureError, never a verdict; all nodes draw alike, so a
candidate gets the same verdict from each; `close` leaves no process.

Ray starts a lost judge anew (`max_restarts`) where there is a node with room for it; jobs go to the
others meanwhile. What a judge is comes as an import path, since training does not import it. Nodes
that join the cluster later get a judge only in place of a lost one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import ray
import structlog
from ray.exceptions import RayError

from coding_framework.errors import (
    InfrastructureError,
    UsageError,
    error_as_data,
    raise_reported,
)
from coding_framework.training.verl.spec import build
from coding_framework.types import Task, Verdict

log = structlog.get_logger(__name__)

_CLOSED = "the judge pool is closed: make a new one"
_RETRIES = 1
_START_S = 600.0
"""For the judges to start, and for one to come back where all are lost: nodes may be on their way.
"""
_BACK_S = 1.0
_CONNECT_S = 10.0


class _NodeJudge:
    """The actor: a judge on its node. Errors go back as data, so that their class survives."""

    def __init__(self, factory: str, arguments: Mapping[str, Any]) -> None:
        self._judge = build(factory, **arguments)
        self._life = os.urandom(8).hex()

    async def judge(self, task: Task, code: str) -> Verdict | dict[str, str]:
        try:
            verdict: Verdict = await self._judge(task, code)
        except Exception as e:  # the boundary: the pool raises it again on its side
            return error_as_data(e)
        return verdict

    def life(self) -> str:
        """Tells this process from the one that Ray starts when it is lost; the first call waits
        until the judge is made."""
        return self._life


@dataclass(slots=True, eq=False)
class _Node:
    """One actor, how many jobs it has, and whether it is there."""

    actor: Any
    life: str = ""
    jobs: int = 0
    lost: bool = False


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
        resource: str | None = None,
    ) -> None:
        """factory: "module:callable" that makes a judge of `arguments` on each node; give it a
        secret or a seed, so that all draw alike.
        address: of the cluster to join where this process is in none; None: one of this machine.
        nodes: default all that have the processors. jobs_per_node: default the fewest processors of
        a node. job_wall_s: backstop on one job, our fault when reached. resource: judge on the
        nodes that have this Ray resource alone.
        Raises UsageError for more jobs than a node has processors, InfrastructureError where the
        cluster does not answer or a judge does not start."""
        self._ours = not ray.is_initialized()
        if self._ours:
            _join(address)
        try:
            jobs, count = _room(jobs_per_node, nodes, resource)
            self._nodes = _start_judges(factory, dict(arguments or {}), jobs, count, resource)
        except BaseException:
            if self._ours:
                ray.shutdown()
            raise
        self._jobs_per_node = jobs
        self._job_wall_s = job_wall_s
        self.capacity = jobs * count
        """Jobs at a time."""
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Condition()
        """Of `_nodes`: one has room, or is back."""
        self._waits: set[asyncio.Task[None]] = set()
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
        _end_judges(self._nodes)
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
            for attempt in range(1 + _RETRIES):
                node = await self._take()
                try:
                    return await self._judge_on(node, task, code)
                except RayError as e:
                    why = type(e).__name__
                    log.warning("node_judge_lost", task=task.name, why=why, attempt=attempt)
                    self._lose(node)
                finally:
                    await self._give(node)
        except asyncio.CancelledError:
            if self._closed:
                raise InfrastructureError(_CLOSED) from None
            raise
        raise InfrastructureError(
            f"a candidate of task {task.name!r} was lost twice with the process that judged it "
            f"({why}): try again"
        )

    async def _take(self) -> _Node:
        """The judge with most room, one of its places taken; waits for one. Raises
        InfrastructureError where all are lost and none comes back."""
        async with self._changed:
            while True:
                there = [n for n in self._nodes if not n.lost and n.jobs < self._jobs_per_node]
                if there:
                    node = min(there, key=lambda n: n.jobs)
                    node.jobs += 1
                    return node
                try:
                    async with asyncio.timeout(_START_S):
                        await self._changed.wait()
                except TimeoutError as e:
                    if all(n.lost for n in self._nodes):
                        raise InfrastructureError(
                            "all judges of the Ray cluster are lost: add a node, and try again"
                        ) from e

    async def _give(self, node: _Node) -> None:
        async with self._changed:
            node.jobs -= 1
            self._changed.notify()

    def _lose(self, node: _Node, killed: str = "") -> None:
        """Send it no jobs until it is back. killed: the life that is not to be waited for."""
        if not node.lost:
            node.lost = True
            wait = self._loop.create_task(self._wait_until_back(node, killed))
            self._waits.add(wait)
            wait.add_done_callback(self._waits.discard)

    async def _wait_until_back(self, node: _Node, killed: str) -> None:
        node.life = killed
        while node.life == killed:
            try:
                node.life = await node.actor.life.remote()
            except RayError:
                node.life = killed
            if node.life == killed:
                await asyncio.sleep(_BACK_S)
        async with self._changed:
            node.lost = False
            self._changed.notify_all()

    async def _judge_on(self, node: _Node, task: Task, code: str) -> Verdict:
        """Raises RayError where the job is lost."""
        try:
            async with asyncio.timeout(self._job_wall_s):
                answer = await node.actor.judge.remote(task, code)
        except TimeoutError as e:
            log.warning("node_judge_silent", task=task.name, limit_s=self._job_wall_s)
            self._lose(node, killed=node.life)
            ray.kill(node.actor, no_restart=False)  # what else it has is judged again
            raise InfrastructureError(
                f"no node gave a verdict on task {task.name!r} within {self._job_wall_s:.0f} s: "
                "look at the cluster, and try again"
            ) from e
        if isinstance(answer, Verdict):
            return answer
        raise_reported(answer)
        raise InfrastructureError(f"a judge answered with neither verdict nor error: {answer!r}")


def _join(address: str | None) -> None:
    """Join the cluster, or start one. Raises UsageError for what is no address, InfrastructureError
    where none answers: at once, while Ray would try for minutes."""
    if address not in (None, "auto", "local"):
        _require_answer(str(address))
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    except (ConnectionError, RuntimeError) as e:
        raise _no_cluster(address) from e


def _require_answer(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        raise UsageError(
            f"{address!r} is no address of a Ray cluster: write HOST:PORT, auto or local"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as e:
        raise _no_cluster(address) from e


def _no_cluster(address: str | None) -> InfrastructureError:
    return InfrastructureError(
        f"no Ray cluster answers at {address!r}: start one with `ray start --head`, and give the "
        "address that it prints"
    )


def _room(jobs: int | None, nodes: int | None, resource: str | None) -> tuple[int, int]:
    """Jobs for each node, and how many nodes, as the cluster has processors for them."""
    processors = [
        int(n["Resources"]["CPU"])
        for n in ray.nodes()
        if n["Alive"]
        and n["Resources"].get("CPU", 0) >= 1
        and (resource is None or resource in n["Resources"])
    ]
    if not processors and resource is not None:
        raise InfrastructureError(
            f"no node of the Ray cluster has the resource {resource!r}: start those that judge "
            f"with ray start --resources='{{\"{resource}\": 1}}'"
        )
    if not processors:
        raise InfrastructureError("the Ray cluster has no processors: add a node, try again")
    jobs = jobs or min(processors)
    count = nodes or sum(jobs <= p for p in processors)
    if not 0 < count <= sum(p // jobs for p in processors):
        raise UsageError(
            f"the Ray cluster has no room for {count or 1} judges of {jobs} candidates at a time: "
            f"its nodes have {', '.join(map(str, sorted(processors)))} processors, ask for less"
        )
    return jobs, count


def _start_judges(
    factory: str, arguments: dict[str, Any], jobs: int, count: int, resource: str | None
) -> list[_Node]:
    """A judge on each of `count` nodes. Raises InfrastructureError where one does not start."""
    actor = ray.remote(_NodeJudge).options(
        num_cpus=jobs,
        max_concurrency=jobs + 1,
        max_restarts=-1,
        scheduling_strategy="SPREAD",
        # A mark, not an amount: the processors are what runs out.
        resources={resource: 0.0001} if resource is not None else None,
    )
    nodes = [_Node(actor.remote(factory, arguments)) for _ in range(count)]
    try:
        lives = ray.get([node.actor.life.remote() for node in nodes], timeout=_START_S)
    except RayError as e:
        _end_judges(nodes)
        why = str(e).strip().splitlines()[-1:] or [""]
        raise InfrastructureError(
            f"a judge could not start on its node ({type(e).__name__}: {why[0][:300]}): install "
            "this package and its toolkit there, and see that its processors are free"
        ) from e
    for node, life in zip(nodes, lives, strict=True):
        node.life = life
    return nodes


def _end_judges(nodes: Iterable[_Node]) -> None:
    for node in nodes:
        with suppress(RayError):
            ray.kill(node.actor)


async def _cancel_all() -> None:
    """Cancel every job of the loop that this runs in, and wait for their ends."""
    jobs = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)

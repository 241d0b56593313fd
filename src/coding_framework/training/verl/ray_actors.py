"""Actors on the nodes of a Ray cluster, and calls that outlive the loss of one.

Guaranteed: each actor has at most as many calls as it has places, all others wait; a call that is
lost, with its node or with the process that worked on it, is made again once, by whatever actor has
room then; a second loss, or no answer within the wall limit, is InfrastructureError.

Ray starts a lost actor anew (`max_restarts`) where there is a node with room for it; calls go to
the others meanwhile. Nodes that join the cluster later get an actor only in place of a lost one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from coding_framework.errors import InfrastructureError, error_as_data, raise_reported
from coding_framework.store.events import log
from coding_framework.training.import_paths import build
from coding_framework.training.verl.ray_cluster import Layout

_RETRIES = 1
_START_S = 600.0
"""For the actors to start, and for one to come back where all are lost: nodes may be on their way.
"""
_BACK_S = 1.0


class NodeJudge:
    """The actor: a judge, or a part of one, on its node. Errors go back as data, so that their
    class survives."""

    def __init__(self, factory: str, arguments: Mapping[str, Any]) -> None:
        self._made = build(factory, **arguments)
        self._life = os.urandom(8).hex()

    async def ask(self, method: str, *arguments: Any) -> Any:
        """What a method gives, or the error that it raised, as data (`raise_from_node`)."""
        try:
            return await getattr(self._made, method)(*arguments)
        except Exception as e:  # the boundary: the pool raises it again on its side
            return error_as_data(e)

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


class ActorGroup:
    """Actors of one kind. Its calls belong to one event loop."""

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, Any],
        layout: Layout,
        *,
        wall_s: float,
    ) -> None:
        """factory: "module:callable" that makes of `arguments` what an actor holds. wall_s:
        backstop on one call, our fault when reached. Raises InfrastructureError where an actor
        does not start."""
        self._nodes = _start(factory, dict(arguments), layout)
        self._places = layout.places
        self._wall_s = wall_s
        self.capacity = layout.places * layout.count
        """Calls at a time."""
        self._changed = asyncio.Condition()
        """Of `_nodes`: one has room, or is back."""
        self._waits: set[asyncio.Task[None]] = set()

    async def call(self, task: str, method: str, *arguments: Any) -> Any:
        """What a method of one of them gives. task: for messages. Raises InfrastructureError on a
        fault of ours, and what the method raised where that is of this package."""
        for attempt in range(1 + _RETRIES):
            node = await self._take()
            try:
                return await self._ask(node, task, method, arguments)
            except RayError as e:
                why = type(e).__name__
                log.warning("node_judge_lost", task=task, why=why, attempt=attempt)
                self._lose(node)
            finally:
                await self._give(node)
        raise InfrastructureError(
            f"a candidate of task {task!r} was lost twice with the process that judged it "
            f"({why}): try again"
        )

    def close(self) -> None:
        """End every actor now."""
        _end(self._nodes)

    async def _take(self) -> _Node:
        """The actor with most room, one of its places taken; waits for one. Raises
        InfrastructureError where all are lost and none comes back."""
        async with self._changed:
            while True:
                there = [n for n in self._nodes if not n.lost and n.jobs < self._places]
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
                            "all processes of the Ray cluster that judged candidates are "
                            "lost: add a node, and try again"
                        ) from e

    async def _give(self, node: _Node) -> None:
        async with self._changed:
            node.jobs -= 1
            self._changed.notify()

    def _lose(self, node: _Node, killed: str = "") -> None:
        """Send it no jobs until it is back. killed: the life that is not to be waited for."""
        if not node.lost:
            node.lost = True
            wait = asyncio.get_running_loop().create_task(self._wait_until_back(node, killed))
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

    async def _ask(self, node: _Node, task: str, method: str, arguments: tuple[Any, ...]) -> Any:
        """Raises RayError where the call is lost."""
        try:
            async with asyncio.timeout(self._wall_s):
                answer = await node.actor.ask.remote(method, *arguments)
        except TimeoutError as e:
            log.warning("node_judge_silent", task=task, limit_s=self._wall_s)
            self._lose(node, killed=node.life)
            ray.kill(node.actor, no_restart=False)  # what else it has is done again
            raise InfrastructureError(
                f"no node judged a candidate of task {task!r} within {self._wall_s:.0f} s: "
                "look at the cluster, and try again"
            ) from e
        raise_from_node(answer)
        return answer


def raise_from_node(answer: Any) -> None:
    """Raise what `NodeJudge.ask` gave as data."""
    if isinstance(answer, dict):
        raise_reported(answer)


def _start(factory: str, arguments: dict[str, Any], layout: Layout) -> list[_Node]:
    """As many actors as the layout has. Raises InfrastructureError where one does not start."""
    actor = ray.remote(NodeJudge).options(
        max_concurrency=layout.places + 1,
        max_restarts=-1,
        scheduling_strategy="SPREAD",
        **layout.options,
    )
    nodes = [_Node(actor.remote(factory, arguments)) for _ in range(layout.count)]
    try:
        lives = ray.get([node.actor.life.remote() for node in nodes], timeout=_START_S)
    except RayError as e:
        _end(nodes)
        why = str(e).strip().splitlines()[-1:] or [""]
        raise InfrastructureError(
            f"a judge could not start on its node ({type(e).__name__}: {why[0][:300]}): install "
            "this package and its toolkit there, and see that its processors, or units of the "
            "resource, are free"
        ) from e
    for node, life in zip(nodes, lives, strict=True):
        node.life = life
    return nodes


def _end(nodes: Iterable[_Node]) -> None:
    for node in nodes:
        with suppress(RayError):
            ray.kill(node.actor)

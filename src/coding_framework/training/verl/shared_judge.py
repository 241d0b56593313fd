"""One judge for all rollout workers of a machine, or of the cluster.

A worker with a judge of its own has its part of the cores, and these stand still when it is done
before the others: with eight workers a step of 1,024 conversations waited for the one that had
drawn the most work. So the first worker starts one Ray actor with all of the cores, or with all of
the nodes that judge, and the others use it. Guaranteed: equal candidates of all workers of a
machine that are there at the same time are judged once; verdicts that are lost with the actor are
made again once, by the one that Ray starts in its place; a second loss is InfrastructureError,
never a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from coding_framework.errors import InfrastructureError
from coding_framework.training.verl.ray_judge import NodeJudge, raise_from_node
from coding_framework.types import Probe, ProbeResult, Task, Verdict

ACTOR = "coding_framework_judge"
"""Ray name by which workers share a judge; with the node's where they are those of a machine."""
_AT_ONCE = 4000
"""Calls that the actor takes at a time, others wait; how many are judged is its own matter."""
_RESTART_S = 300
"""Longest wait for a lost actor's successor, which loads PyTorch, on a loaded machine."""
_LOOK_S = 0.2


class SharedJudge:
    """A worker's way to the judge that it shares; satisfies `types.JudgeFn`."""

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, Any],
        shared_by: Literal["machine", "cluster"] = "machine",
        gpus: str | None = None,
    ) -> None:
        """factory: "module:callable" that makes the judge of `arguments`; equal for all workers.
        shared_by: the workers of this machine, or all of the cluster. gpus: what the judge sees, as
        CUDA_VISIBLE_DEVICES says it; None: all that the workers would."""
        node = ray.get_runtime_context().get_node_id()
        everywhere = shared_by == "cluster"
        seen = {"runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": gpus}}} if gpus else {}
        self._actor = (
            ray.remote(NodeJudge)
            .options(
                name=ACTOR if everywhere else f"{ACTOR}_{node}",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=_AT_ONCE,
                max_restarts=-1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=everywhere),
                **seen,
            )
            .remote(factory, dict(arguments))
        )

    async def __call__(self, task: Task, code: str) -> Verdict:
        """The verdict on one candidate. Raises InfrastructureError on a fault of ours."""
        verdict: Verdict = await self._ask("__call__", task, code)
        return verdict

    async def probe(
        self, task: Task, code: str, probes: tuple[Probe, ...]
    ) -> tuple[ProbeResult, ...]:
        """What comes of a tester's probes (`types.ProbeFn`). Raises InfrastructureError."""
        return tuple(await self._ask("probe", task, code, probes))

    async def _ask(self, method: str, task: Task, *arguments: Any) -> Any:
        try:
            try:
                answer = await self._actor.ask.remote(method, task, *arguments)
            except RayActorError:
                await self._there_again()
                answer = await self._actor.ask.remote(method, task, *arguments)
        except RayError as e:
            why = (str(e).strip().splitlines() or [""])[-1]
            raise InfrastructureError(
                f"the judge that the rollout workers share did not start, or was lost twice, with "
                f"a candidate of task {task.name!r} ({type(e).__name__}: {why[:300]}): try again"
            ) from e
        raise_from_node(answer)
        return answer

    async def _there_again(self) -> None:
        """Wait for the actor that Ray starts in place of a lost one. Ray's own `max_task_retries`
        spends its tries on an actor whose loss it has not noticed yet."""
        deadline = asyncio.get_running_loop().time() + _RESTART_S
        while True:
            try:
                await self._actor.life.remote()
                return
            except ActorUnavailableError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_LOOK_S)

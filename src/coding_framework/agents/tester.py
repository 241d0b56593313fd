"""The agent that looks for inputs that break a kernel.

It proposes sizes and kinds of values within the task's declared domain; the judge draws and runs
them. What it finds is feedback for the other agents and nothing else: no verdict and no reward
depends on it, it uses no turn, and it is not trained. Without a model, or where the model says
nothing that can be used, it goes through the sizes and values at which kernels usually break.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import ValidationError

from coding_framework.agents.devices import this_device
from coding_framework.agents.prompts import PromptBudget, messages_for_tester
from coding_framework.errors import InfrastructureError, PolicyError, UsageError
from coding_framework.store.events import log
from coding_framework.task_shapes import Size, free_sizes, with_sizes
from coding_framework.types import (
    CUDAConversationState,
    Policy,
    Probe,
    ProbeFn,
    ProbeResult,
    Role,
    SamplingParams,
    Status,
    Task,
)

WORTH_PROBING = frozenset(
    {Status.CORRECT, Status.WRONG_OUTPUT, Status.NONDETERMINISTIC, Status.RUNTIME_ERROR}
)
"""Kernels that run, so that inputs make a difference."""
_MAX_WHY_CHARS = 120
_MAX_ANSWER_CHARS = 20_000
_OBJECT = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_BLOCK_SIZE = re.compile(r"\b(?:32|64|96|128|192|256|384|512|768|1024)\b")


class TesterAgent:
    """Probes the last kernel of a conversation; makes `probes` proposals a turn at most."""

    __test__ = False  # keeps pytest from collecting the class
    role: ClassVar[Role] = Role.TESTER

    def __init__(
        self,
        probe: ProbeFn,
        policy: Policy | None = None,
        sampling: SamplingParams | None = None,
        *,
        budget: PromptBudget | None = None,
        device: str | None = None,
        probes: int = 3,
    ) -> None:
        """probe: runs proposals (cuda: `JudgePool.probe`). policy: None: the usual suspects.
        device: the GPU that prompts tell of; None: `this_device`."""
        self._run = probe
        self.policy = policy
        self.sampling = sampling or SamplingParams(max_new_tokens=256)
        self.budget = budget
        self.device = device or this_device()
        self.probes = probes

    async def probe(self, state: CUDAConversationState) -> tuple[ProbeResult, ...]:
        """What came of the proposals for the last turn's kernel; empty where there is none to run.
        A fault of the model or of ours is logged and costs the findings, not the conversation."""
        turn = state.turns[-1]
        verdict = turn.verdict
        if turn.code is None or verdict is None or verdict.status not in WORTH_PROBING:
            return ()
        proposals = await self.propose(state)
        try:
            return await self._run(state.task, turn.code, proposals)
        except InfrastructureError as e:
            log.warning("probes_failed", task=state.task.name, error=str(e)[:200])
            return ()

    async def propose(self, state: CUDAConversationState) -> tuple[Probe, ...]:
        """The model's usable proposals, filled up with the usual ones. No probe twice."""
        proposals = list(await self._asked(state))
        turn = state.turns[-1]
        usual = usual_probes(state.task, turn.code or "")
        start = turn.index * self.probes % max(1, len(usual))
        for probe in (*usual[start:], *usual[:start]):
            if len(proposals) >= self.probes:
                break
            if all((p.shapes, p.values) != (probe.shapes, probe.values) for p in proposals):
                proposals.append(probe)
        return tuple(proposals[: self.probes])

    async def _asked(self, state: CUDAConversationState) -> tuple[Probe, ...]:
        if self.policy is None:
            return ()
        try:
            messages = messages_for_tester(
                state, count=self.probes, budget=self.budget, device=self.device
            )
            answer = await self.policy.generate(messages, self.sampling)
        except (PolicyError, UsageError) as e:  # UsageError: a prompt beyond the budget
            log.warning("tester_failed", task=state.task.name, error=str(e)[:200])
            return ()
        return read_probes(state.task, answer.text)


def read_probes(task: Task, answer: str) -> tuple[Probe, ...]:
    """The proposals in a model's answer that lie in the task's domain, each once. Never raises."""
    found: dict[tuple[object, ...], Probe] = {}
    for match in _OBJECT.finditer(answer[:_MAX_ANSWER_CHARS]):
        try:
            probe = _read(task, json.loads(match.group()))
        except (ValueError, ValidationError, RecursionError):
            continue
        found.setdefault((probe.shapes, probe.values), probe)
    return tuple(found.values())


def _read(task: Task, given: Any) -> Probe:
    """Raises ValueError for a proposal of another form, or outside the domain."""
    sizes = given.get("sizes", {}) if isinstance(given, dict) else None
    if not isinstance(sizes, dict) or any(type(value) is not int for value in sizes.values()):
        raise ValueError("no probe")
    why = " ".join(str(given.get("why", "")).split())[:_MAX_WHY_CHARS]
    shapes = with_sizes(task, {str(name): value for name, value in sizes.items()})
    return Probe.model_validate(
        {"shapes": shapes, "values": given.get("values", "normal"), "why": why}
    )


def usual_probes(task: Task, code: str) -> tuple[Probe, ...]:
    """Inputs at which kernels usually break, the most telling first: sizes one past a vector or a
    block, the smallest, sums that cancel, a single large value. Block sizes come from the code."""
    distinct: dict[tuple[object, ...], Probe] = {}
    for probe in _suspects(task, code):
        distinct.setdefault((probe.shapes, probe.values), probe)
    return tuple(distinct.values())


def _suspects(task: Task, code: str) -> Iterator[Probe]:
    sizes = free_sizes(task)
    shown = with_sizes(task, {})
    blocks = sorted({int(m) for m in _BLOCK_SIZE.findall(code)}, reverse=True)[:2] or [256]
    if sizes:
        yield _sized(task, sizes, 4, "one past a vector of 4")
    yield Probe(shapes=shown, values="alternating", why="sums that cancel, extremes side by side")
    if sizes:
        smallest = {size.name: size.low for size in sizes}
        yield Probe(shapes=with_sizes(task, smallest), why="the smallest sizes")
    yield Probe(shapes=shown, values="outlier", why="one value far above the others")
    for block in blocks if sizes else ():
        yield _sized(task, sizes, block, f"one past a block of {block}")
    yield Probe(shapes=shown, values="ends", why="values at the ends of the domain")
    if sizes:
        largest = {size.name: size.high for size in sizes}
        yield Probe(shapes=with_sizes(task, largest), values="ramp", why="the largest sizes")
    yield Probe(shapes=shown, values="zeros", why="all values equal")


def _sized(task: Task, sizes: tuple[Size, ...], step: int, why: str) -> Probe:
    """Every size at the largest value of its range that is one past a multiple of `step`."""
    values = {}
    for size in sizes:
        past = (size.high - 1) // step * step + 1
        values[size.name] = past if past >= size.low else size.high
    return Probe(shapes=with_sizes(task, values), why=why)

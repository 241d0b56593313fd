"""Rejection sampling: which of a policy's own kernels are worth learning from, and what its samples
say of each task.

    conversations -> correct, fast, different kernels -> examples; and p(solve) of every task

Pure. Learning from the correct samples alone is most of what reinforcement learning does where
answers are right or wrong (RAFT, arXiv:2504.11343), so it is the control that RL has to beat.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from coding_framework.store.records import TaskEvidence
from coding_framework.types import (
    ConversationTurn,
    CUDAConversationState,
    ExampleKind,
    Role,
    TrainingExample,
    Verdict,
)


class SelectionRule(Protocol):
    """Which correct kernels are kept (`run.rejection_options`)."""

    @property
    def least_speed(self) -> float:
        """Share of the speed of the task's fastest kernel that a kernel must have."""

    @property
    def keep_per_task(self) -> int:
        """Most kernels of a task."""


@dataclass(frozen=True)
class Selection:
    """What came of the samples."""

    examples: tuple[TrainingExample, ...]
    evidence: tuple[TaskEvidence, ...]
    """Of every task that was asked for, in the order of their names."""


@dataclass(frozen=True)
class _Kernel:
    """A correct kernel and how it came about."""

    turn: ConversationTurn
    verdict: Verdict
    state: CUDAConversationState
    before: ConversationTurn | None
    """The turn that it improves on or repairs; None: the first one."""

    @property
    def kind(self) -> ExampleKind:
        if self.before is None:
            return "generate"
        return "optimize" if _correct(self.before) else "repair"

    @property
    def ms(self) -> float | None:
        return _ms(self.verdict)

    @property
    def device_code(self) -> str:
        compiled = self.verdict.compile
        return (compiled.ptx_sha256 if compiled else "") or self.verdict.candidate_sha256


def select(conversations: Iterable[CUDAConversationState], rule: SelectionRule) -> Selection:
    """Choose from finished conversations; those of one task may come in any order."""
    by_task: dict[str, list[CUDAConversationState]] = defaultdict(list)
    for state in conversations:
        by_task[state.task.name].append(state)
    examples: list[TrainingExample] = []
    evidence: list[TaskEvidence] = []
    for name, states in sorted(by_task.items()):
        kernels = [kernel for state in states for kernel in _correct_kernels(state)]
        examples += map(_example, _kept(kernels, rule))
        evidence.append(_evidence(name, states, kernels))
    return Selection(tuple(examples), tuple(evidence))


def _correct(turn: ConversationTurn) -> bool:
    return turn.verdict is not None and turn.masked is None and turn.verdict.correct


def _ms(verdict: Verdict) -> float | None:
    return verdict.timing.kernel_ms if verdict.timing is not None else None


def _correct_kernels(state: CUDAConversationState) -> Iterator[_Kernel]:
    """Correct first answers, repairs of the turn before, and kernels faster than it."""
    for turn in state.turns:
        if not _correct(turn) or turn.verdict is None or turn.extraction.code is None:
            continue
        before = state.turns[turn.index - 1] if turn.index else None
        if before is not None and (before.extraction.code is None or before.verdict is None):
            continue
        kernel = _Kernel(turn, turn.verdict, state, before)
        if kernel.kind != "optimize" or _faster(kernel):
            yield kernel


def _faster(kernel: _Kernel) -> bool:
    before = kernel.before.verdict if kernel.before is not None else None
    earlier = _ms(before) if before is not None else None
    return kernel.ms is not None and earlier is not None and kernel.ms < earlier


def _kept(kernels: Sequence[_Kernel], rule: SelectionRule) -> list[_Kernel]:
    """The fastest kernels of a task with different device code."""
    times = [kernel.ms for kernel in kernels if kernel.ms is not None]
    slowest = min(times) / max(rule.least_speed, 1e-9) if times else None
    kept: list[_Kernel] = []
    seen: set[str] = set()
    for kernel in sorted(kernels, key=_by_speed):
        slow = slowest is not None and (kernel.ms is None or kernel.ms > slowest)
        if kernel.device_code in seen or (slow and kernel.kind != "repair"):
            continue
        seen.add(kernel.device_code)
        kept.append(kernel)
    return kept[: rule.keep_per_task]


def _by_speed(kernel: _Kernel) -> tuple[float, int, str]:
    ms = kernel.ms
    code = kernel.turn.extraction.code or ""
    return (float("inf") if ms is None else ms, len(code), code)


def _example(kernel: _Kernel) -> TrainingExample:
    """The kernel as an answer to the prompt that it answered."""
    before, code = kernel.before, kernel.turn.extraction.code or ""
    return TrainingExample(
        id=f"own:{kernel.state.task.name}:{kernel.verdict.candidate_sha256[:16]}:{kernel.kind}",
        task=kernel.state.task,
        role=Role.GENERATOR if before is None else Role.OPTIMIZER,
        kind=kernel.kind,
        code=code,
        previous_code=before.extraction.code if before is not None else None,
        previous_verdict=before.verdict if before is not None else None,
        receipt=kernel.verdict.candidate_sha256,
    )


def _evidence(
    name: str, states: Sequence[CUDAConversationState], kernels: Sequence[_Kernel]
) -> TaskEvidence:
    first = [s.turns[0] for s in states if s.turns]
    judged = [t for t in first if t.verdict is not None and t.masked is None]
    times = [kernel.ms for kernel in kernels if kernel.ms is not None]
    speedups = [s for kernel in kernels if (s := kernel.verdict.speedup) is not None]
    return TaskEvidence(
        task=name,
        samples=len(judged),
        solved=sum(map(_correct, judged)),
        best_ms=min(times, default=None),
        median_ms=statistics.median(times) if times else None,
        best_speedup=max(speedups, default=None),
        tokens=sum(turn.tokens for state in states for turn in state.turns),
    )

"""One flat record for each sample: every number of an evaluation is computed from these.

conversation -> SampleRecord -> estimates, comparison, gates; records.jsonl for pandas
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coding_framework.orchestration.turn import UNSUPPORTED_REASON
from coding_framework.registry.digests import task_digest
from coding_framework.types import (
    TIMED,
    BaselineName,
    BenchmarkResult,
    Candidate,
    ConversationTurn,
    CUDAConversationState,
    Record,
    RulesName,
    Verdict,
)

Basis = Literal["measured", "modelled"]
IMPROVEMENT = 1.01
"""Ratio of speedups above which a turn counts as faster than another."""
MAX_SPEEDUP = 1000.0
"""Above it a time is doubted, whatever the judge said: PyTorch would have to waste all but a
thousandth of the device."""


_OF_TIMING = {*(f"{name}_ms" for name in (*TIMED["all"], "naive"))} | {
    "workspace_bytes", "eager_workspace_bytes",
}  # fmt: skip


class SampleRecord(Record):
    """What one sample (one conversation about one task) came to. Maker: `sample_record`.
    Consumers: `estimates`, `compare`, records.jsonl."""

    suite: str = ""
    task: str
    task_digest: str = ""
    """Of what an answer is judged by; "" in records of an older version."""
    level: int | None = None
    """KernelBench's level, where the task is one of its problems."""
    tier: int = 0
    family: str = ""
    ops: int = 0
    sample: int = 0
    turns: int = 1
    best_turn: int | None = None
    """Index of the turn that the sample is scored by; None: no turn was judged."""
    first_correct_turn: int | None = None
    improved: bool = False
    """Whether the first answer was correct and a later one faster, by over 1%."""
    repeats: int = 0
    """Answers with code of an earlier turn."""
    end_reason: str = ""
    status: str = ""
    """Of that turn's verdict; "" where the sample is masked."""
    reason: str = ""
    compiled: bool = False
    """Whether any turn compiled."""
    correct: bool = False
    """By our protocol, and by the published rules where some are followed."""
    rules: RulesName = "ours"
    by_rules: bool | None = None
    """What the published rules alone say; None: there are none, or nothing could be compared."""
    by_rules_reason: str = ""
    cheats: tuple[str, ...] = ()
    speedup: float | None = None
    """Over `baseline`, of a correct kernel whose time is known."""
    basis: Basis | None = None
    baseline: BaselineName = "eager"
    kernel_ms: float | None = None
    kernel_ms_low: float | None = None
    kernel_ms_high: float | None = None
    eager_ms: float | None = None
    eager_tf32_ms: float | None = None
    compiled_ms: float | None = None
    compiled_tf32_ms: float | None = None
    naive_ms: float | None = None
    workspace_bytes: int | None = None
    eager_workspace_bytes: int | None = None
    memory: float | None = None
    """Memory that eager holds at its peak over what the kernel does, with inputs and outputs."""
    roofline: float | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    tokens: int = 0
    """Generated over all turns."""
    cut: int = 0
    """Answers that the limit of tokens cut off."""
    seconds: float | None = None
    masked: str | None = None
    """What kept every turn from a verdict that counts: a fault of ours, or what the judge lacks;
    None: the sample counts."""
    suspect: str = ""
    """Why its time cannot be believed: it enters no mean, and the report lists it."""
    code_sha256: str = ""
    device: str = ""
    """The GPU that times are measured on or modelled for, as `basis` says."""
    protocol: str = ""
    holdout_status: str | None = None
    """Of the same kernel at shapes that training does not have; None: not judged there."""
    holdout_speedup: float | None = None
    holdout_reason: str = ""

    @property
    def is_gap(self) -> bool:
        """Whether the judge lacks something that the candidate needs: no later run will have it."""
        return self.masked is not None and self.masked.startswith(UNSUPPORTED_REASON)


def sample_record(
    state: CUDAConversationState,
    *,
    suite: str = "",
    sample: int = 0,
    baseline: BaselineName = "eager",
    level: int | None = None,
) -> SampleRecord:
    """The record of a finished conversation, scored by its best turn: the fastest correct one, else
    the last one that was judged. Where times are modelled, the baseline is the naive kernel."""
    judged = [t for t in state.turns if t.verdict is not None and t.masked is None]
    masked = next((t.masked for t in state.turns if t.masked is not None), "no turn was judged")
    codes = [turn.code for turn in state.turns if turn.code is not None]
    task = state.task
    head = {
        "suite": suite,
        "task": task.name,
        "task_digest": task_digest(task),
        "level": level,
        "tier": task.tier,
        "family": task.family,
        "ops": len(task.ops),
        "sample": sample,
        "turns": len(state.turns),
        "end_reason": state.end_reason or "",
        "first_correct_turn": next((t.index for t in judged if _is_correct(t)), None),
        "improved": _is_improved(state),
        "repeats": len(codes) - len(set(codes)),
        "tokens": sum(turn.tokens for turn in state.turns),
        "cut": sum(turn.generation.finish_reason == "length" for turn in state.turns),
    }
    if not judged:
        return SampleRecord(**head, masked=masked)
    best = state.best_turn or judged[-1]
    verdict = best.verdict
    assert verdict is not None
    code = best.code
    return SampleRecord(
        **head,
        best_turn=best.index,
        compiled=any(t.verdict is not None and t.verdict.compiled for t in judged),
        code_sha256="" if code is None else Candidate.model_construct(code=code).sha256,
        **_verdict_fields(verdict, baseline),
    )


def _is_correct(turn: ConversationTurn) -> bool:
    return turn.verdict is not None and turn.verdict.correct


def _is_improved(state: CUDAConversationState) -> bool:
    best = state.best_turn
    if best is None or best.verdict is None or not _is_correct(state.turns[0]):
        return False
    first = state.turns[0].verdict
    assert first is not None
    return (best.verdict.speedup or 0.0) > IMPROVEMENT * (first.speedup or 0.0)


def _verdict_fields(verdict: Verdict, baseline: BaselineName) -> dict[str, object]:
    timing, compiled, ruled = verdict.timing, verdict.compile, verdict.by_rules
    found: dict[str, object] = {
        "status": verdict.status.value,
        "reason": verdict.reason,
        "correct": verdict.correct and (ruled is None or ruled.passed is not False),
        "cheats": tuple(finding.rule for finding in verdict.cheats),
        "device": verdict.receipt.gpu,
        "protocol": verdict.receipt.protocol,
        "registers": None if compiled is None else compiled.registers,
        "spill_bytes": None if compiled is None else compiled.spill_bytes,
    }
    if ruled is not None:
        found |= {"rules": ruled.rules, "by_rules": ruled.passed, "by_rules_reason": ruled.reason}
    if timing is None:
        return found
    against: BaselineName = "naive" if timing.modelled else baseline
    speedup = _speedup(timing, against)
    return found | {
        "speedup": speedup,
        "suspect": _suspicion(timing, speedup),
        "basis": "modelled" if timing.modelled else "measured",
        "baseline": against,
        "kernel_ms": timing.kernel_ms,
        "kernel_ms_low": timing.kernel_ms_ci95[0],
        "kernel_ms_high": timing.kernel_ms_ci95[1],
        **timing.model_dump(include=_OF_TIMING),
        "memory": timing.memory_ratio,
        "roofline": timing.roofline_fraction,
    }


def _speedup(timing: BenchmarkResult, baseline: BaselineName) -> float | None:
    """None where it is not known, or is no positive number: such a time is a fault, not a gain."""
    value = timing.over(baseline)
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _suspicion(timing: BenchmarkResult, speedup: float | None) -> str:
    if not timing.kernel_ms > 0:
        return f"its time is {timing.kernel_ms} ms"
    if speedup is not None and speedup > MAX_SPEEDUP:
        return f"a speedup of {speedup:.3g}: no kernel gains so much"
    return ""


def once(samples: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Each sample of a task once, though several suites hold the task: it is one answer. The record
    that knows the kernel at other shapes goes before one that does not."""
    found: dict[tuple[str, str, int], SampleRecord] = {}
    for sample in samples:
        key = (sample.task, sample.task_digest, sample.sample)
        if key not in found or found[key].holdout_status is None:
            found[key] = sample
    return list(found.values())


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Samples of each task, counted. Arrays are over the tasks, in the order of `tasks`."""

    tasks: tuple[str, ...]
    judged_t: NDArray[np.int64]
    """Samples that were judged (masked ones are left out); tasks without one are left out."""
    hits_t: NDArray[np.int64]
    """Those of them that fulfil what is counted."""

    @property
    def shares_t(self) -> NDArray[np.float64]:
        return np.asarray(self.hits_t / self.judged_t)


def count_by_task(samples: Iterable[SampleRecord], above: float | None = None) -> TaskCounts:
    """Correct samples of each task. above: only those whose speedup is greater (strictly)."""
    judged: dict[str, int] = defaultdict(int)
    hits: dict[str, int] = defaultdict(int)
    for sample in samples:
        if sample.masked is None:
            judged[sample.task] += 1
            hits[sample.task] += is_hit(sample, above)
    names = tuple(sorted(judged))
    return TaskCounts(
        names, np.array([judged[n] for n in names]), np.array([hits[n] for n in names])
    )


def fastest_by_task(samples: Iterable[SampleRecord]) -> dict[str, SampleRecord]:
    """Of each task with a correct sample whose time is known, the fastest one."""
    best: dict[str, SampleRecord] = {}
    for sample in samples:
        held = best.get(sample.task)
        if is_hit(sample, 0.0) and (held is None or gain(sample) > gain(held)):
            best[sample.task] = sample
    return best


def gain(sample: SampleRecord) -> float:
    """The speedup of a sample whose time is known."""
    assert sample.speedup is not None
    return sample.speedup


def is_hit(sample: SampleRecord, above: float | None) -> bool:
    """Whether a sample is correct and, where asked, faster than `above` times the baseline."""
    if above is None or not sample.correct:
        return sample.correct
    return sample.speedup is not None and sample.speedup > above

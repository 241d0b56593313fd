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

from coding_framework.types import BenchmarkResult, CUDAConversationState, Record, Verdict

Baseline = Literal["eager", "compiled", "naive"]
Basis = Literal["measured", "modelled"]


class SampleRecord(Record):
    """What one sample (one conversation about one task) came to. Maker: `sample_record`.
    Consumers: `estimates`, `compare`, records.jsonl."""

    suite: str = ""
    task: str
    level: int | None = None
    """KernelBench's level, where the task is one of its problems."""
    tier: int = 0
    family: str = ""
    ops: int = 0
    sample: int = 0
    turns: int = 1
    best_turn: int | None = None
    """Index of the turn that the sample is scored by; None: no turn was judged."""
    status: str = ""
    """Of that turn's verdict; "" where the sample is masked."""
    reason: str = ""
    compiled: bool = False
    """Whether any turn compiled."""
    correct: bool = False
    cheats: tuple[str, ...] = ()
    speedup: float | None = None
    """Over `baseline`, of a correct kernel whose time is known."""
    basis: Basis | None = None
    baseline: Baseline = "eager"
    kernel_ms: float | None = None
    kernel_ms_low: float | None = None
    kernel_ms_high: float | None = None
    eager_ms: float | None = None
    naive_ms: float | None = None
    roofline: float | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    tokens: int = 0
    """Generated over all turns."""
    seconds: float | None = None
    masked: str | None = None
    """Our fault that kept every turn from a verdict; None: the sample counts."""
    code_sha256: str = ""
    device: str = ""
    protocol: str = ""
    holdout_status: str | None = None
    """Of the same kernel at shapes that training does not have; None: not judged there."""
    holdout_speedup: float | None = None


def sample_record(
    state: CUDAConversationState,
    *,
    suite: str = "",
    sample: int = 0,
    baseline: Baseline = "eager",
    level: int | None = None,
) -> SampleRecord:
    """The record of a finished conversation, scored by its best turn: the fastest correct one, else
    the last one that was judged. Where times are modelled, the baseline is the naive kernel."""
    judged = [t for t in state.turns if t.verdict is not None and t.masked is None]
    masked = next((t.masked for t in state.turns if t.masked is not None), "no turn was judged")
    task = state.task
    head = {
        "suite": suite,
        "task": task.name,
        "level": level,
        "tier": task.tier,
        "family": task.family,
        "ops": len(task.ops),
        "sample": sample,
        "turns": len(state.turns),
        "tokens": sum(len(turn.generation.response_ids) for turn in state.turns),
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
        code_sha256="" if code is None else _sha256(code),
        **_verdict_fields(verdict, baseline),
    )


def _sha256(code: str) -> str:
    from coding_framework.types import Candidate

    return Candidate.model_construct(code=code).sha256


def _verdict_fields(verdict: Verdict, baseline: Baseline) -> dict[str, object]:
    timing, compiled = verdict.timing, verdict.compile
    found: dict[str, object] = {
        "status": verdict.status.value,
        "reason": verdict.reason,
        "correct": verdict.correct,
        "cheats": tuple(finding.rule for finding in verdict.cheats),
        "device": verdict.receipt.device,
        "protocol": verdict.receipt.protocol,
        "registers": None if compiled is None else compiled.registers,
        "spill_bytes": None if compiled is None else compiled.spill_bytes,
    }
    if timing is None:
        return found
    against: Baseline = "naive" if timing.modelled else baseline
    return found | {
        "speedup": _speedup(timing, against),
        "basis": "modelled" if timing.modelled else "measured",
        "baseline": against,
        "kernel_ms": timing.kernel_ms,
        "kernel_ms_low": timing.kernel_ms_ci95[0],
        "kernel_ms_high": timing.kernel_ms_ci95[1],
        "eager_ms": timing.eager_ms,
        "naive_ms": timing.naive_ms,
        "roofline": timing.roofline_fraction,
    }


def _speedup(timing: BenchmarkResult, baseline: Baseline) -> float | None:
    """None where it is not known, or is no positive number: such a time is a fault, not a gain."""
    value = {
        "eager": timing.speedup,
        "compiled": timing.speedup_vs_compiled,
        "naive": timing.speedup_vs_naive,
    }[baseline]
    return value if value is not None and math.isfinite(value) and value > 0 else None


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


def is_hit(sample: SampleRecord, above: float | None) -> bool:
    """Whether a sample is correct and, where asked, faster than `above` times the baseline."""
    if above is None or not sample.correct:
        return sample.correct
    return sample.speedup is not None and sample.speedup > above

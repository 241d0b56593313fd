"""What an evaluation found, from its sample records: overall, by group, curves, regressions.

Samples whose times are measured and modelled, on different devices or by different protocols, are
never in one number: each such set has a block of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import median

from pydantic import Field

from coding_framework.evaluation.estimates import (
    MIN_TASKS_FOR_A_RATE,
    NOTHING,
    CurvePoint,
    Estimate,
    Share,
    fast_p_curve,
    geometric_mean,
    pass_at,
    rate,
    share,
)
from coding_framework.evaluation.samples import SampleRecord, fastest_by_task, gain
from coding_framework.types import TIMED, Record

SLOWER = 0.95
"""A kernel that is slower than the baseline at other shapes by more than this is a regression."""
LOST_GAIN = 1.5
"""Ratio of speedups above which a gain was the shape's and not the kernel's."""


class Speeds(Record):
    """Speedups of correct kernels over one baseline, on one device, by one protocol."""

    basis: str
    baseline: str
    device: str
    protocol: str
    timed: int
    fast: Mapping[str, Estimate]
    """fast_p, and fast_p@k: "fast_1", "fast_1@5"."""
    median: float | None
    geometric_mean: Estimate
    geometric_mean_above_1: Estimate
    roofline: float | None
    """Median share of the roofline."""
    suspects: tuple[str, ...] = ()
    """Samples whose time cannot be believed, with the reason. The medians and means leave them out;
    fast_p counts them."""
    curve: tuple[CurvePoint, ...] = ()
    best_curve: tuple[CurvePoint, ...] = ()
    """Of the fastest sample of each task; () where each task has one sample."""
    over: Mapping[str, Estimate] = Field(default_factory=dict)
    """Baseline -> geometric mean of the fastest kernels over it, for all that were measured."""
    strongest: str = ""
    """The baseline over which that mean is smallest."""
    memory: Estimate | None = None
    """Geometric mean over them of the memory of eager over the kernel's."""


class ByRules(Record):
    """What published rules and our protocol say of the same samples."""

    rules: str
    theirs: Share
    """Correct by the published rules alone; samples that they could not compare are left out."""
    ours: Share
    refused_by_them: tuple[str, ...]
    """Correct by our protocol, refused by the rules; with the reason."""
    refused_by_us: tuple[str, ...]
    not_compared: tuple[str, ...]


class Regressions(Record):
    """Kernels that are correct at the shown shapes, judged again at shapes training lacks."""

    judged: int
    broken: tuple[str, ...]
    slower_than_baseline: tuple[str, ...]
    lost_gain: tuple[str, ...]
    rate: Share
    """Broken or slower; where times are modelled, broken alone."""


class Block(Record):
    """The numbers of one set of samples. Maker: `summarize_samples`. Consumers: gates, report."""

    tasks: int
    samples: int
    masked: int
    """Samples that a fault of ours kept from a verdict."""
    unsupported: int
    """Samples whose kernels need what the judge lacks."""
    compiled: Share
    correct: Share = NOTHING
    """Of the samples; in summaries of before 0.2 nothing."""
    pass_at: Mapping[str, Estimate]
    """"pass@1", "pass@5", ..."""
    speeds: tuple[Speeds, ...] = ()
    passed_by_turn: tuple[Share, ...] = ()
    """Samples with a correct turn up to the first, the second ..., of all that were judged."""
    improved_by_feedback: int = 0
    """Samples whose first answer was correct and a later one faster, by over 1%."""
    repeated_turns: int = 0
    """Answers with code of an earlier turn: wasted."""
    statuses: Mapping[str, int] = Field(default_factory=dict)
    """Samples by the status of the turn that they are scored by."""
    end_reasons: Mapping[str, int] = Field(default_factory=dict)
    cheats: Share
    rejected: Share
    spilling: Share
    tokens_per_sample: float | None = None
    tokens_per_verified_kernel: float | None = None
    regressions: Regressions | None = None
    by_rules: ByRules | None = None

    @property
    def first_correct(self) -> Share:
        """Samples whose first answer was correct."""
        return self.passed_by_turn[0] if self.passed_by_turn else NOTHING

    @property
    def fixed_by_feedback(self) -> int:
        """Samples whose first answer failed and a later one was correct."""
        return self.correct.count - self.first_correct.count


class EvalSummary(Record):
    """All samples of one suite, and by group."""

    suite: str
    overall: Block
    by: Mapping[str, Block]
    """"tier2", "level1", "ops3", "family.NAME"; of those with fewer than 8 tasks `small` has
    counts."""
    small: Mapping[str, str]


def summarize(
    suite: str, samples: Sequence[SampleRecord], ks: Sequence[int], thresholds: Sequence[float]
) -> EvalSummary:
    """ks: of pass@k. thresholds: p of fast_p."""
    groups: dict[str, list[SampleRecord]] = defaultdict(list)
    for sample in samples:
        groups[f"tier{sample.tier}"].append(sample)
        groups[f"family.{sample.family}"].append(sample)
        groups[f"ops{sample.ops}"].append(sample)
        if sample.level is not None:
            groups[f"level{sample.level}"].append(sample)
    tasks = {name: len({s.task for s in of}) for name, of in groups.items()}
    return EvalSummary(
        suite=suite,
        overall=summarize_samples(samples, ks, thresholds, curves=True),
        by={
            name: summarize_samples(of, ks, thresholds)
            for name, of in sorted(groups.items())
            if tasks[name] >= MIN_TASKS_FOR_A_RATE
        },
        small={
            name: f"{sum(s.correct for s in of)} of {len(of)} samples correct, {tasks[name]} tasks"
            for name, of in sorted(groups.items())
            if tasks[name] < MIN_TASKS_FOR_A_RATE
        },
    )


def summarize_samples(
    samples: Sequence[SampleRecord],
    ks: Sequence[int],
    thresholds: Sequence[float],
    *,
    curves: bool = False,
) -> Block:
    """The numbers of one set of samples; those without a value say why."""
    judged = [s for s in samples if s.masked is None]
    verified = sum(s.correct for s in judged)
    tokens = sum(s.tokens for s in judged)
    return Block(
        tasks=len({s.task for s in judged}),
        samples=len(judged),
        masked=sum(s.masked is not None and not s.is_gap for s in samples),
        unsupported=sum(s.is_gap for s in samples),
        compiled=share(s.compiled for s in judged),
        correct=share(s.correct for s in judged),
        pass_at={f"pass@{k}": rate(judged) if k == 1 else pass_at(judged, k) for k in ks},
        speeds=tuple(_speeds(judged, ks, thresholds, curves)),
        passed_by_turn=_passed_by_turn(judged),
        improved_by_feedback=sum(s.improved for s in judged),
        repeated_turns=sum(s.repeats for s in judged),
        statuses=dict(sorted(Counter(s.status for s in judged).items())),
        end_reasons=dict(sorted(Counter(s.end_reason for s in judged).items())),
        cheats=share(bool(s.cheats) for s in judged),
        rejected=share(s.status == "rejected" for s in judged),
        spilling=share(bool(s.spill_bytes) for s in judged if s.compiled),
        tokens_per_sample=tokens / len(judged) if tokens else None,
        tokens_per_verified_kernel=tokens / verified if verified and tokens else None,
        regressions=regressions(judged),
        by_rules=_by_rules(judged),
    )


def _by_rules(judged: Sequence[SampleRecord]) -> ByRules | None:
    """None where no published rules are followed."""
    ruled = [s for s in judged if s.rules != "ours"]
    if not ruled:
        return None
    said = [s for s in ruled if s.by_rules is not None]
    return ByRules(
        rules=ruled[0].rules,
        theirs=share(s.by_rules is True for s in said),
        ours=share(s.status == "correct" for s in ruled),
        refused_by_them=_named(
            [s for s in said if s.status == "correct" and not s.by_rules],
            lambda s: f": {s.by_rules_reason}",
        ),
        refused_by_us=_named(
            [s for s in said if s.status != "correct" and s.by_rules],
            lambda s: f": {s.status} ({s.reason})",
        ),
        not_compared=_named(
            [s for s in ruled if s.by_rules is None], lambda s: f": {s.by_rules_reason}"
        ),
    )


def _passed_by_turn(judged: Sequence[SampleRecord]) -> tuple[Share, ...]:
    turns = max((s.turns for s in judged), default=0)
    first = [s.first_correct_turn for s in judged]
    return tuple(share(f is not None and f <= turn for f in first) for turn in range(turns))


def _conditions(sample: SampleRecord) -> tuple[str, str, str, str]:
    return (sample.basis or "", sample.baseline, sample.device, sample.protocol)


def _speeds(
    judged: Sequence[SampleRecord], ks: Sequence[int], thresholds: Sequence[float], curves: bool
) -> list[Speeds]:
    """A block for each set of conditions under which kernels were timed. In each, a sample that is
    wrong or untimed counts as not fast, and one timed under other conditions is left out."""
    timed = [s for s in judged if s.correct and s.speedup is not None]
    blocks = []
    for conditions, found in groupby(sorted(timed, key=_conditions), key=_conditions):
        own = list(found)
        others = [s for s in judged if s.speedup is None or not s.correct]
        rows = [*own, *others]
        best = list(fastest_by_task(own).values())
        roofs = [s.roofline for s in best if s.roofline is not None]
        fast = {f"fast_{p:g}": rate(rows, p) for p in thresholds}
        fast |= {f"fast_{p:g}@{k}": pass_at(rows, k, p) for p in thresholds for k in ks if k > 1}
        fastest = [s for s in best if not s.suspect]
        gains = [gain(s) for s in fastest]
        over = _over_each(fastest)
        memory = [s.memory for s in fastest if s.memory is not None]
        several = curves and len({s.task for s in rows}) < len(rows)
        basis, baseline, device, protocol = conditions
        blocks.append(
            Speeds(
                basis=basis,
                baseline=baseline,
                device=device,
                protocol=protocol,
                timed=len(own),
                fast=fast,
                median=median(gains) if gains else None,
                geometric_mean=geometric_mean(gains),
                geometric_mean_above_1=geometric_mean([value for value in gains if value > 1]),
                roofline=median(roofs) if roofs else None,
                suspects=tuple(f"{s.task}/{s.sample}: {s.suspect}" for s in own if s.suspect),
                curve=fast_p_curve(rows, thresholds) if curves else (),
                best_curve=fast_p_curve(_best_of_each(rows), thresholds) if several else (),
                over=over,
                strongest=min(over, key=lambda name: over[name].value or 0.0, default=""),
                memory=geometric_mean(memory) if memory else None,
            )
        )
    return blocks


def _best_of_each(rows: Sequence[SampleRecord]) -> list[SampleRecord]:
    """The fastest sample of each task; any of those that has no correct one."""
    return list(({s.task: s for s in rows} | fastest_by_task(rows)).values())


def _over_each(fastest: Sequence[SampleRecord]) -> dict[str, Estimate]:
    """Baseline -> geometric mean over it, for those of PyTorch's that all of these kernels have."""
    found: dict[str, Estimate] = {}
    for name in TIMED["all"]:
        times = [(getattr(s, f"{name}_ms"), s.kernel_ms) for s in fastest]
        known = [base / own for base, own in times if base and own]
        if known and len(known) == len(times):
            found[name] = geometric_mean(known)
    return found


def regressions(judged: Sequence[SampleRecord]) -> Regressions | None:
    """Of kernels that were judged at other shapes too; None where none was."""
    rows = [s for s in judged if s.correct and s.holdout_status is not None]
    if not rows:
        return None
    broken = [s for s in rows if s.holdout_status != "correct"]
    both = [s for s in rows if s.holdout_status == "correct" and _is_measured(s)]
    slower = [s for s in both if _at_other(s) < SLOWER and (s.speedup or 0.0) >= 1.0]
    lost = [s for s in both if _at_other(s) * LOST_GAIN < (s.speedup or 0.0)]
    worse = {id(s) for s in (*broken, *slower)}
    return Regressions(
        judged=len(rows),
        broken=_named(broken, lambda s: f": {s.holdout_status} ({s.holdout_reason})"),
        slower_than_baseline=_named(slower, lambda s: f": {_at_other(s):.2f}x"),
        lost_gain=_named(lost, lambda s: f": {s.speedup:.2f}x, then {_at_other(s):.2f}x"),
        rate=share(id(s) in worse for s in rows),
    )


def _is_measured(sample: SampleRecord) -> bool:
    return sample.basis == "measured" and sample.holdout_speedup is not None


def _at_other(sample: SampleRecord) -> float:
    return sample.holdout_speedup or 0.0


def _named(
    samples: Sequence[SampleRecord], detail: Callable[[SampleRecord], str]
) -> tuple[str, ...]:
    return tuple(f"{s.task}/{s.sample}{detail(s)}" for s in samples)

"""Is B better than A? Two runs on the same tasks, paired task by task.

A difference is called one only when two things agree: the 95% interval of the mean difference (BCa
bootstrap over tasks) leaves out 0, and a test that is exact when both models are equal rejects
after Holm's correction over all metrics of the table. That test is McNemar's where each run has one
sample a task; otherwise the signs of the tasks' differences are flipped at random, which under
equality changes nothing. Speeds are compared over the tasks that both solved; two times whose 95%
intervals overlap are a tie.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from coding_framework.errors import UsageError
from coding_framework.evaluation.estimates import mean_interval
from coding_framework.evaluation.samples import (
    SampleRecord,
    count_by_task,
    fastest_by_task,
    gain,
    once,
)
from coding_framework.types import Record

Word = Literal["better", "worse", "no clear difference"]
FLIPS = 10_000
LEVEL = 0.05
MIN_SHARED = 0.5
"""Share of A's tasks that B must have: below it the two runs are of different suites."""
MIN_TASKS_FOR_A_WORD = 8
"""With fewer tasks no difference is called one, whatever its interval."""
SOLVED, UNSOLVED = 0.8, 0.2
"""Shares of samples: a task that one run solves in at least the first and the other in at most the
second is listed by name."""


class Difference(Record):
    """B less A in one metric."""

    metric: str
    estimate: float
    ci95: tuple[float, float]
    p_value: float
    p_holm: float
    """Corrected for all metrics of the table."""
    word: Word
    tasks: int
    smallest_visible: float
    """The difference that so many tasks would have shown four times in five."""


class Comparison(Record):
    """Two runs, paired. Maker: `compare_runs`. Consumers: `cuda-rl eval compare`, report, gates."""

    tasks: int
    left_out: tuple[str, ...]
    """Tasks that only one of the runs has."""
    differences: tuple[Difference, ...]
    speed: Difference | None
    """Of the logarithms of the speedups; None where no task was solved and timed by both."""
    lost: tuple[str, ...]
    """Tasks that A solves and B does not."""
    won: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The verdict in words, on the first metric."""
        first = self.differences[0]
        low, high = (100 * end for end in first.ci95)
        word = first.word if first.word == "no clear difference" else f"B is {first.word} than A"
        return (
            f"{word} in {first.metric}: {100 * first.estimate:+.1f} points "
            f"(95%: {low:+.1f} to {high:+.1f}, {first.tasks} tasks)"
        )


def compare_runs(
    a: Sequence[SampleRecord], b: Sequence[SampleRecord], thresholds: Sequence[float] = (1.0,)
) -> Comparison:
    """thresholds: the p whose fast_p is compared beside the pass rate. Raises UsageError where the
    runs share fewer than half of A's tasks, or were judged by different protocols or rules."""
    _require_one_judge(a, b)
    a = once(a)
    b = _by_the_names_of(a, once(b))
    names_a, names_b = ({s.task for s in run if s.masked is None} for run in (a, b))
    shared = names_a & names_b
    if not shared or len(shared) < MIN_SHARED * len(names_a):
        raise UsageError(
            f"the two runs share {len(shared)} of {len(names_a)} tasks: compare runs of one suite"
        )
    a, b = ([s for s in run if s.task in shared] for run in (a, b))
    raw = [("pass@1", _shares(a, None), _shares(b, None))]
    comparable = {(s.basis, s.baseline, s.device) for s in (*a, *b) if s.speedup is not None}
    if len(comparable) == 1:
        raw += [(f"fast_{p:g}", _shares(a, p), _shares(b, p)) for p in thresholds]
    single = all(len(run) == len({s.task for s in run}) for run in (a, b))
    tests = [(name, y - x, _p_value(y - x, single)) for name, x, y in raw]
    logs = _log_ratios(a, b) if len(comparable) == 1 else np.zeros(0)
    if logs.size:
        tests.append(("speedup", logs, _signed_rank(logs)))
    corrected = holm([p for _, _, p in tests])
    found = [_difference(*test, p) for test, p in zip(tests, corrected, strict=True)]
    shares = {name: (x, y) for name, x, y in zip(sorted(shared), raw[0][1], raw[0][2], strict=True)}
    return Comparison(
        tasks=len(shared),
        left_out=tuple(sorted(names_a ^ names_b)),
        differences=tuple(found[: len(raw)]),
        speed=found[-1] if logs.size else None,
        lost=tuple(n for n, (x, y) in shares.items() if x >= SOLVED and y <= UNSOLVED),
        won=tuple(n for n, (x, y) in shares.items() if y >= SOLVED and x <= UNSOLVED),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that hold for all of them together."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def flip_test(differences_t: np.ndarray) -> float:
    """Two-sided p-value of "the differences are symmetric around 0": the share of random signs
    under which their sum is at least as far from 0. Exact up to the number of draws, which counts
    the observed signs as one."""
    changed = differences_t[differences_t != 0]
    if not changed.size:
        return 1.0
    signs = np.random.default_rng(0).integers(0, 2, (FLIPS, changed.size), dtype=np.int8) * 2 - 1
    sums = np.abs(signs @ changed)
    return float((1 + np.sum(sums >= abs(changed.sum()) - 1e-12)) / (1 + FLIPS))


def _by_the_names_of(a: Sequence[SampleRecord], b: Sequence[SampleRecord]) -> list[SampleRecord]:
    """B's samples by A's names of the same tasks: a task that was renamed is the same one, and one
    that has only the name in common is another."""
    known = {(s.task, s.task_digest) for s in a if s.task_digest}
    if not known:  # records of an older version
        return list(b)
    taken = {(s.task, s.task_digest) for s in b}
    names = Counter(digest for _, digest in known), Counter(digest for _, digest in taken)
    renamed = {
        digest: task for task, digest in known - taken if names[0][digest] == names[1][digest] == 1
    }

    def name(sample: SampleRecord) -> str:
        digest = sample.task_digest
        if not digest or (sample.task, digest) in known:
            return sample.task
        return renamed.get(digest, f"another task named {sample.task}")

    return [s.model_copy(update={"task": name(s)}) for s in b]


def _require_one_judge(a: Sequence[SampleRecord], b: Sequence[SampleRecord]) -> None:
    protocols = sorted({s.protocol for s in (*a, *b) if s.protocol})
    if len(protocols) > 1:
        raise UsageError(
            f"the runs were judged by protocols {' and '.join(protocols)}: judge the older run's "
            "answers again"
        )
    rules = sorted({s.rules for s in (*a, *b)})
    if len(rules) > 1:
        raise UsageError(
            f"the runs follow the rules {' and '.join(rules)}, which call other answers correct: "
            "judge one run's answers again by the rules of the other (--answers, --rules)"
        )


def _shares(run: Sequence[SampleRecord], above: float | None) -> np.ndarray:
    return count_by_task(run, above).shares_t


def _p_value(differences_t: np.ndarray, single: bool) -> float:
    if not single:
        return flip_test(differences_t)
    from scipy.stats import binomtest  # half a second, which a run's start does not have

    gained, lost = int((differences_t > 0).sum()), int((differences_t < 0).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def _log_ratios(a: Sequence[SampleRecord], b: Sequence[SampleRecord]) -> np.ndarray:
    """Over tasks that both solved: log of the ratio of their best speedups; 0 for a tie."""
    best_a, best_b = fastest_by_task(a), fastest_by_task(b)
    ratios = [
        0.0 if _overlap(best_a[n], best_b[n]) else math.log(gain(best_b[n]) / gain(best_a[n]))
        for n in sorted(best_a.keys() & best_b.keys())
    ]
    return np.array(ratios)


def _overlap(one: SampleRecord, other: SampleRecord) -> bool:
    ends = (one.kernel_ms_low, one.kernel_ms_high, other.kernel_ms_low, other.kernel_ms_high)
    if any(end is None for end in ends):
        return False
    low, high, other_low, other_high = (float(end or 0.0) for end in ends)
    return low <= other_high and other_low <= high


def _signed_rank(logs: np.ndarray) -> float:
    if not logs.any():
        return 1.0
    from scipy.stats import wilcoxon

    return float(wilcoxon(logs, zero_method="zsplit").pvalue)


def _difference(metric: str, values_t: np.ndarray, p: float, p_holm: float) -> Difference:
    low, high = mean_interval(values_t, "BCa")
    if len(values_t) == 1 and metric != "speedup":  # one share says nothing of the next
        low, high = -1.0, 1.0
    estimate = float(values_t.mean())
    clear = p_holm < LEVEL and (low > 0 or high < 0) and len(values_t) >= MIN_TASKS_FOR_A_WORD
    word: Word = "no clear difference"
    if clear:
        word = "better" if estimate > 0 else "worse"
    spread = float(values_t.std(ddof=1)) / math.sqrt(len(values_t)) if len(values_t) > 1 else 0.0
    return Difference(
        metric=metric,
        estimate=estimate,
        ci95=(low, high),
        p_value=p,
        p_holm=p_holm,
        word=word,
        tasks=len(values_t),
        smallest_visible=sum(map(NormalDist().inv_cdf, (0.975, 0.8))) * spread,
    )

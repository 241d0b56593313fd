"""A page of runs under one set of published rules, beside the rows that its authors published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from coding_framework.cuda.expected.rules import RULES
from coding_framework.errors import UsageError
from coding_framework.evaluation.estimates import geometric_mean
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.report import environment
from coding_framework.evaluation.samples import SampleRecord, fastest_by_task, gain
from coding_framework.paths import write_atomic
from coding_framework.store.folder import EvalFolder
from coding_framework.types import Record

OF = "kernelbench-verified"
"""The rules whose authors published rows."""
_SOURCE = "KernelBench-Verified, best of 5 over eager_tf32, one H200"
_PUBLISHED = """
GPT-5.5 (medium)      1  .99 .52  .90 1.24
GPT-5.5 (medium)      2  .99 .649 .85 1.14
Claude Opus 4.8 (high)   1  .75 .34  .53 1.16
Claude Opus 4.8 (high)   2  .959 .588 .62 .99
Claude Sonnet 4.6 (high) 1  .86 .36  .58 1.16
Claude Sonnet 4.6 (high) 2  .948 .485 .57 .91
"""
"""Model, level, correct, fast_1, and over the correct ones the geometric means of speedup and of
memory: the verified results of their report at the commit of the rules."""


class Row(Record):
    """A line of the page, with where and when its figures come from."""

    who: str
    level: int
    correct: float
    """Share of the problems, of the best of the samples; so fast_1."""
    fast_1: float
    speedup: float | None
    """Geometric mean over the fastest correct kernels; so memory."""
    memory: float | None
    source: str
    date: str


Run = tuple[Path, EvalOutcome, list[SampleRecord]]
"""A finished evaluation, behind its folder."""


def write_leaderboard(path: Path, runs: Sequence[Run]) -> None:
    """The page of these runs. Raises UsageError for a run by other rules."""
    rows = list(_published())
    for folder, outcome, records in runs:
        rules = outcome.eval.rules
        if rules is None or rules != RULES[OF]:
            told = "our own" if rules is None else f"{rules.name} at {rules.commit[:12]}"
            raise UsageError(
                f"{folder} follows {told} rules, and the published rows those of {OF}: rows of two "
                "sets of rules are not put beside each other"
            )
        rows += _of_run(folder, outcome, records)
    rows.sort(key=lambda row: (row.level, -row.fast_1, -row.correct))
    page = environment().get_template("leaderboard.html.j2")
    write_atomic(path, page.render(title="KernelBench by the rules " + OF, rows=rows))


def _published() -> Iterator[Row]:
    for line in _PUBLISHED.strip().splitlines():
        *who, level, correct, fast, speedup, memory = line.split()
        yield Row(
            who=" ".join(who), level=int(level), correct=float(correct), fast_1=float(fast),
            speedup=float(speedup), memory=float(memory), source=_SOURCE, date="2026-07",
        )  # fmt: skip


def _of_run(folder: Path, outcome: EvalOutcome, records: Sequence[SampleRecord]) -> Iterator[Row]:
    date = datetime.fromtimestamp(EvalFolder(folder).summary.stat().st_mtime, UTC)
    for level in sorted({r.level for r in records if r.level is not None}):
        judged = [r for r in records if r.level == level and r.masked is None]
        tasks = {r.task for r in judged}
        best = [r for r in fastest_by_task(judged).values() if not r.suspect]
        devices = ", ".join(sorted({r.device for r in best})) or "no device"
        if tasks:
            yield Row(
                who=outcome.eval.model,
                level=level,
                correct=len({r.task for r in judged if r.correct}) / len(tasks),
                fast_1=sum(gain(r) > 1 for r in best) / len(tasks),
                speedup=geometric_mean([gain(r) for r in best]).value,
                memory=geometric_mean([r.memory for r in best if r.memory is not None]).value,
                source=f"{len(judged)} samples of {len(tasks)} problems, "
                f"{best[0].basis if best else 'untimed'} on {devices}, {folder}",
                date=date.date().isoformat(),
            )

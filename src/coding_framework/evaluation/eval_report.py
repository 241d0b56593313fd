"""`report.html` of an evaluation, and its figures as files: one page without network or script.

Kernels, reasons and names are hostile text: the template escapes them, as in `report`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from coding_framework.evaluation.charts import (
    Series,
    StackedBar,
    histogram,
    line_chart,
    stacked_chart,
    standalone,
)
from coding_framework.evaluation.eval_summary import Speeds
from coding_framework.evaluation.outcome import EvalOutcome
from coding_framework.evaluation.report import MAX_CODE_CHARS, environment
from coding_framework.evaluation.samples import SampleRecord, fastest_by_task, gain
from coding_framework.paths import write_atomic
from coding_framework.store.folder import EvalFolder
from coding_framework.types import CUDAConversationState, Record

PARTS = ("no compile", "wrong", "correct", "faster")
"""How far a sample came."""
SHOWN = 3
"""Kernels of each kind that the page shows."""


class KernelView(Record):
    """A kernel as the template shows it."""

    name: str
    why: str
    status: str
    reason: str
    lines: tuple[str, ...]
    cut: bool


def write_eval_report(
    folder: Path,
    outcome: EvalOutcome,
    records: Sequence[SampleRecord],
    states: Sequence[CUDAConversationState],
) -> None:
    """report.html and plots/*.svg in `folder`. states: in the order of the records. Raises
    InfrastructureError where they cannot be written."""
    charts = eval_charts(outcome, records)
    write_atomic(EvalFolder(folder).report, _page(outcome, records, states, charts))
    for number, (_, chart) in enumerate(charts, start=1):
        write_atomic(EvalFolder(folder).plots / f"{number:02}.svg", standalone(chart))


def eval_charts(outcome: EvalOutcome, records: Sequence[SampleRecord]) -> list[tuple[str, Markup]]:
    """(heading, chart) of everything that can be drawn of the run."""
    found = [
        *_fast_charts(outcome),
        ("pass@k", _pass_chart(outcome)),
        ("How far the samples of each tier came", _funnel(records)),
        ("Memory against speed, of the fastest kernel of each task", _memory_chart(records)),
    ]
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.correct and record.speedup is not None and not record.suspect:
            groups[f"{record.basis}, over {record.baseline}"].append(record.speedup)
    for kind, speedups in sorted(groups.items()):
        drawn = histogram(speedups, x_label="speedup", y_label="kernels")
        found.append((f"Speedups of correct kernels ({kind})", drawn))
    return [(heading, chart) for heading, chart in found if chart]


def _fast_charts(outcome: EvalOutcome) -> list[tuple[str, Markup]]:
    """A chart for each kind of times, a curve for each suite."""
    kinds: dict[str, list[tuple[str, Speeds]]] = defaultdict(list)
    for summary in outcome.suites:
        for speeds in summary.overall.speeds:
            kind = f"{speeds.basis} on {speeds.device}, over {speeds.baseline}"
            kinds[kind].append((summary.suite, speeds))
    charts = []
    for kind, curves in kinds.items():
        series = [
            Series(
                name=suite,
                points=tuple((c.p, c.value) for c in speeds.curve if c.p > 0),
                band=tuple((c.p, c.low, c.high) for c in speeds.curve if c.p > 0),
                colour=i % 5 + 2,
            )
            for i, (suite, speeds) in enumerate(_with_the_best(curves))
        ]
        chart = line_chart(series, x_label="p", y_label="fast_p", y_from_zero=True, x_log=True)
        charts.append((f"fast_p, with 95% bands ({kind})", chart))
    return charts


def _with_the_best(curves: Sequence[tuple[str, Speeds]]) -> Iterator[tuple[str, Speeds]]:
    """Each curve, and behind it that of the fastest samples."""
    for suite, speeds in curves:
        yield suite, speeds
        if speeds.best_curve:
            yield f"{suite}, best", speeds.model_copy(update={"curve": speeds.best_curve})


def _memory_chart(records: Sequence[SampleRecord]) -> Markup:
    """A dot a task: further right is faster, higher is less memory than eager holds."""
    series = []
    for i, suite in enumerate(dict.fromkeys(r.suite for r in records)):
        best = fastest_by_task(r for r in records if r.suite == suite and not r.suspect).values()
        points = tuple((gain(r), r.memory) for r in best if r.memory is not None)
        series.append(Series(name=suite, points=points, colour=i % 5 + 2))
    return line_chart(
        series, x_label="speedup", y_label="eager's memory / its own", x_log=True, joined=False
    )


def _pass_chart(outcome: EvalOutcome) -> Markup:
    if len(outcome.ks) < 2:
        return Markup("")
    series = []
    for i, summary in enumerate(outcome.suites):
        found = [(k, summary.overall.pass_at[f"pass@{k}"]) for k in outcome.ks]
        told = [(k, e.value, e.ci95) for k, e in found if e.value is not None and e.ci95]
        if len(told) < 2:
            continue
        series.append(
            Series(
                name=summary.suite,
                points=tuple((k, value) for k, value, _ in told),
                band=tuple((k, *ends) for k, _, ends in told),
                colour=i % 5 + 2,
            )
        )
    return line_chart(series, x_label="k", y_label="pass@k", y_from_zero=True, x_log=True)


def _funnel(records: Sequence[SampleRecord]) -> Markup:
    tiers: dict[int, list[int]] = defaultdict(lambda: [0] * len(PARTS))
    for record in records:
        if record.masked is None:
            faster = record.correct and (record.speedup or 0.0) > 1.0
            tiers[record.tier][record.compiled + record.correct + faster] += 1
    bars = [
        StackedBar(name=f"tier {t}", counts=tuple(counts)) for t, counts in sorted(tiers.items())
    ]
    return stacked_chart(bars, PARTS, title="samples by tier") if bars else Markup("")


def _page(
    outcome: EvalOutcome,
    records: Sequence[SampleRecord],
    states: Sequence[CUDAConversationState],
    charts: Sequence[tuple[str, Markup]],
) -> str:
    compared = outcome.compared
    return (
        environment()
        .get_template("eval_report.html.j2")
        .render(
            title=f"Evaluation of {outcome.eval.model}",
            lead=_lead(outcome),
            outcome=outcome,
            facts=_facts(outcome, records),
            speeds=[(s.suite, speeds) for s in outcome.suites for speeds in s.overall.speeds],
            charts=charts,
            regressions=outcome.overall.overall.regressions,
            by_rules=outcome.overall.overall.by_rules,
            differences=()
            if compared is None
            else (*compared.differences, *((compared.speed,) if compared.speed else ())),
            kernels=list(_kernels(records, states)),
        )
    )


def _lead(outcome: EvalOutcome) -> str:
    block = outcome.overall.overall
    passed = block.pass_at["pass@1"]
    if passed.value is None or passed.ci95 is None:
        return f"No sample has a verdict ({passed.why})."
    low, high = passed.ci95
    return (
        f"{passed.value:.0%} of the answers are correct kernels (95%: {low:.0%} to {high:.0%}; "
        f"{block.samples} samples of {block.tasks} tasks)."
    )


def _facts(outcome: EvalOutcome, records: Sequence[SampleRecord]) -> list[tuple[str, str]]:
    identity = outcome.eval
    devices = sorted({record.device for record in records if record.device})
    facts = [
        ("model", f"{identity.model} ({identity.model_digest[:24]})"),
        ("devices", ", ".join(devices) or "none was reached"),
        ("protocol", str(identity.judge.get("protocol", ""))),
        ("prompts", identity.prompts),
        ("samples, turns", f"{identity.samples} of each task, at most {identity.turns} turns"),
        ("sampling", ", ".join(f"{name} {value}" for name, value in identity.sampling.items())),
        ("seed", str(identity.seed)),
    ]
    if (rules := identity.rules) is not None:
        facts += [
            ("rules", f"{rules.name}: {rules.source} at {rules.commit[:12]}"),
            ("their library calls", rules.libraries),
            ("their inputs", ", ".join(f"times {scale:g}" for scale in rules.scales)),
            ("they left out", "; ".join(f"level {k}: {n}" for k, n in rules.left_out.items())),
        ]
    facts += [(suite, f"digest {digest[:16]}") for suite, digest in identity.suites.items()]
    return facts + [(f"leak, {suite}", told) for suite, told in outcome.leak.items()]


def _kernels(
    records: Sequence[SampleRecord], states: Sequence[CUDAConversationState]
) -> Sequence[KernelView]:
    """The fastest, those that break at other shapes, the slowest, and a failure of each status."""
    codes = {id(record): _code(state) for record, state in zip(records, states, strict=True)}
    fast = sorted(fastest_by_task(records).values(), key=gain, reverse=True)
    broken = [r for r in records if r.correct and r.holdout_status not in (None, "correct")]
    failed: Mapping[str, SampleRecord] = {
        r.status: r for r in reversed(records) if r.masked is None and not r.correct
    }
    chosen: dict[int, tuple[SampleRecord, str]] = {}
    for why, found in (
        ("among the fastest", fast[:SHOWN]),
        ("broken at other shapes", broken[:SHOWN]),
        ("among the slowest", fast[-SHOWN:]),
        ("a failure", list(failed.values())),
    ):
        for record in found:
            chosen.setdefault(id(record), (record, why))
    return [_view(record, why, codes[id(record)]) for record, why in chosen.values()]


def _code(state: CUDAConversationState) -> str:
    turn = state.best_turn or state.turns[-1]
    return turn.code if turn.code is not None else turn.generation.text


def _view(record: SampleRecord, why: str, code: str) -> KernelView:
    speed = f", {record.speedup:.2f}× ({record.basis})" if record.speedup is not None else ""
    broken = f"; at other shapes {record.holdout_status}: {record.holdout_reason}"
    return KernelView(
        name=f"{record.task}/{record.sample}",
        why=why + speed,
        status=record.status,
        reason=record.reason + (broken if record.holdout_status else ""),
        lines=tuple(code[:MAX_CODE_CHARS].splitlines()),
        cut=len(code) > MAX_CODE_CHARS,
    )

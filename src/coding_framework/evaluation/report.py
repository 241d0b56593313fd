"""`report.html`: one file that shows a run, without network or script.

Kernels, reasons and task names are hostile text: everything is escaped by the template, characters
that a terminal or a browser would act on are shown by name, and the page's content policy forbids
scripts and every fetch, should an escape ever be forgotten.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Field

from coding_framework.evaluation.charts import IntervalBar, Series, interval_chart, line_chart
from coding_framework.evaluation.metrics import Proportion, StageMetrics
from coding_framework.monitoring.text import visible
from coding_framework.paths import write_atomic
from coding_framework.types import ConversationTurn, CUDAConversationState, Record

MAX_CODE_CHARS = 12_000
"""Longer code is cut in the report, and said to be; the stored conversation has all of it."""
DIFF_CONTEXT_LINES = 3
STYLE = Path(__file__).parent / "templates" / "style.css"
"""The one style sheet: a report holds a copy, the viewer serves it."""


class TrainingStep(Record):
    """One optimizer step, as its trainer logged it."""

    step: int
    values: Mapping[str, float] = Field(default_factory=dict)


class TrainingCurve(Record):
    """Numbers over the steps of a training stage, drawn as one chart."""

    title: str
    y_label: str
    steps: tuple[TrainingStep, ...]
    keys: tuple[str, ...]
    """Which values to draw."""
    names: Mapping[str, str] = Field(default_factory=dict)
    """What a reader calls them, where that is another word."""
    x_label: str = "optimizer step"

    @property
    def share(self) -> bool:
        """Whether the values are between 0 and 1."""
        return self.y_label == "share"


class StageConversations(Record):
    """The conversations of one evaluation."""

    label: str
    states: tuple[CUDAConversationState, ...]


class ReportData(Record):
    """All that a report shows. Maker: quickstart. Consumer: `write_report`."""

    title: str
    lead: str
    """One or two sentences under the headline."""
    headline: str = ""
    """What the run means, in a sentence; "" where the title says it all."""
    next_steps: tuple[tuple[str, str], ...] = ()
    """What to do next: (what for, command)."""
    facts: tuple[tuple[str, str], ...] = ()
    """Name and value, e.g. ("device", "emulator of NVIDIA H200")."""
    stages: tuple[StageMetrics, ...] = ()
    curves: tuple[TrainingCurve, ...] = ()
    conversations: tuple[StageConversations, ...] = ()
    examples: int = 4
    """How many tasks are shown with their kernels."""


class CodeLine(Record):
    """A line of code or diff, and how to paint it."""

    kind: Literal["same", "added", "removed", "hunk"]
    text: str


class TurnView(Record):
    """A turn as the template shows it."""

    turn: ConversationTurn
    stage: str
    lines: tuple[CodeLine, ...]
    is_diff: bool
    cut: bool


class ExampleView(Record):
    """A task with its turns in every stage."""

    name: str
    why: str
    description: str
    reference: str
    turns: tuple[TurnView, ...]


def write_report(data: ReportData, path: Path) -> None:
    """Write the report as one file. Raises InfrastructureError where it cannot be written."""
    write_atomic(path, render(data))


def render(data: ReportData) -> str:
    """The report's HTML."""
    rates = (("pass", "Correct kernels"), ("compile", "Kernels that compile"))
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            rates=[(title, _rate_chart(data.stages, which)) for which, title in rates],
            curves=[(curve.title, _curve_chart(curve)) for curve in data.curves],
            statuses=sorted({status for stage in data.stages for status in stage.statuses}),
            examples=[_example(*chosen, data.conversations) for chosen in choose_examples(data)],
        )
    )


@cache
def environment() -> Environment:
    """Of all pages: what they show is escaped."""
    made = Environment(
        loader=PackageLoader("coding_framework.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["visible"] = visible
    made.filters["percent"] = lambda value: f"{value:.0%}"
    return made


def choose_examples(data: ReportData) -> list[tuple[str, str]]:
    """(task, why) of the tasks that show most: the best kernel, repaired, learnt, not solved."""
    if not data.conversations:
        return []
    last = {s.task.name: s for s in data.conversations[-1].states}
    first = {s.task.name: s for s in data.conversations[0].states}
    chosen: dict[str, str] = {}
    for why, wanted in (
        ("the best kernel: the fastest against its naive version", _solved),
        ("repaired or improved after feedback", _gained_by_turn),
        ("learnt: not solved by the base model", lambda s: _learnt(first.get(s.task.name), s)),
        ("not solved", lambda s: s.best_turn is None),
    ):
        found = [s for s in last.values() if s.task.name not in chosen and wanted(s)]
        if found:
            chosen[max(found, key=_best_speedup).task.name] = why
    for name in last:
        if len(chosen) >= data.examples:
            break
        chosen.setdefault(name, "another held-out task")
    return list(chosen.items())[: data.examples]


def diff_lines(before: str, after: str) -> tuple[CodeLine, ...]:
    """A unified diff as painted lines; its two file headers are left out."""
    diff = difflib.unified_diff(
        before.splitlines(), after.splitlines(), lineterm="", n=DIFF_CONTEXT_LINES
    )
    kinds: dict[str, Literal["same", "added", "removed", "hunk"]] = {
        "+": "added",
        "-": "removed",
        "@": "hunk",
        " ": "same",
    }
    return tuple(
        CodeLine(kind=kinds[line[0]] if line else "same", text=line) for line in list(diff)[2:]
    )


def _example(name: str, why: str, conversations: Sequence[StageConversations]) -> ExampleView:
    views: list[TurnView] = []
    task = None
    for stage in conversations:
        state = next((s for s in stage.states if s.task.name == name), None)
        if state is None:
            continue
        task = state.task
        previous: str | None = None
        for turn in state.turns:
            views.append(_turn_view(turn, stage.label, previous))
            previous = turn.code or previous
    assert task is not None, "an example is chosen among the conversations"
    return ExampleView(
        name=name,
        why=why,
        description=task.description,
        reference=task.reference,
        turns=tuple(views),
    )


def _turn_view(turn: ConversationTurn, stage: str, previous: str | None) -> TurnView:
    shown = turn.code if turn.code is not None else turn.generation.text
    cut = len(shown) > MAX_CODE_CHARS
    shown = shown[:MAX_CODE_CHARS]
    if turn.code is not None and previous is not None and previous != turn.code:
        lines = diff_lines(previous[:MAX_CODE_CHARS], shown)
        return TurnView(turn=turn, stage=stage, lines=lines, is_diff=True, cut=cut)
    lines = tuple(CodeLine(kind="same", text=line) for line in shown.splitlines())
    return TurnView(turn=turn, stage=stage, lines=lines, is_diff=False, cut=cut)


def _rate_chart(stages: Sequence[StageMetrics], which: str) -> str:
    bars = []
    for i, stage in enumerate(stages):
        rate: Proportion = stage.passed if which == "pass" else stage.compile
        low, high = rate.ci95
        text = f"{rate.rate:.0%} ({rate.count} of {rate.n})"
        bars.append(
            IntervalBar(
                name=stage.label, rate=rate.rate, low=low, high=high, text=text, colour=i % 6 + 1
            )
        )
    return interval_chart(bars, title=f"{which} rate by stage, with 95% intervals")


def _curve_chart(curve: TrainingCurve) -> str:
    series = [
        Series(
            name=curve.names.get(key, key),
            points=tuple((s.step, s.values[key]) for s in curve.steps if key in s.values),
            colour=(i + 1) % 6 + 1,
        )
        for i, key in enumerate(curve.keys)
    ]
    if max((len(s.points) for s in series), default=0) == 1:  # one point is a number
        told = (f"{s.name}: {s.points[0][1]:.4g}" for s in series if s.points)
        return f"{', '.join(told)} (one measurement)"
    return line_chart(
        series, x_label=curve.x_label, y_label=curve.y_label, y_from_zero=True, share=curve.share
    )


def _solved(state: CUDAConversationState) -> bool:
    return state.best_turn is not None


def _gained_by_turn(state: CUDAConversationState) -> bool:
    best = state.best_turn
    if best is None or best.index == 0:
        return False
    first = state.turns[0].verdict
    if first is None or not first.correct:
        return True
    return bool(best.verdict and (best.verdict.speedup or 0.0) > 1.02 * (first.speedup or 0.0))


def _learnt(before: CUDAConversationState | None, after: CUDAConversationState) -> bool:
    return after.best_turn is not None and (before is None or before.best_turn is None)


def _best_speedup(state: CUDAConversationState) -> float:
    best = state.best_turn
    return (best.verdict.speedup or 0.0) if best is not None and best.verdict is not None else 0.0

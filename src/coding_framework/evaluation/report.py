"""`report.html`: one file that shows a run, without network or script.

Kernels, reasons and task names are hostile text: everything is escaped by the template, characters
that a terminal or a browser would act on are shown by name, and the page's content policy forbids
scripts and every fetch, should an escape ever be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Field

from coding_framework.evaluation.charts import IntervalBar, interval_chart
from coding_framework.evaluation.estimates import Share
from coding_framework.evaluation.eval_summary import Block
from coding_framework.evaluation.summary import median_speedup, percent
from coding_framework.monitoring.text import visible
from coding_framework.paths import write_atomic
from coding_framework.types import Record

MAX_CODE_CHARS = 12_000
"""Longer code is cut in the report, and said to be; the stored conversation has all of it."""
STYLE = Path(__file__).parent / "templates" / "style.css"
"""The one style sheet: a report holds a copy, the viewer serves it."""


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
    stages: Mapping[str, Block] = Field(default_factory=dict)
    """By label; `evaluations/LABEL/report.html` shows each with its kernels."""
    curves: tuple[tuple[str, Any], ...] = ()
    """Title and chart of the trainings: SVG as markup, or words."""


def write_report(data: ReportData, path: Path) -> None:
    """Write the report as one file. Raises InfrastructureError where it cannot be written."""
    write_atomic(path, render(data))


def render(data: ReportData) -> str:
    """The report's HTML."""
    correct = {label: stage.correct for label, stage in data.stages.items()}
    compiled = {label: stage.compiled for label, stage in data.stages.items()}
    rates = [
        ("Correct kernels", _rate_chart(correct, "pass rate")),
        ("Kernels that compile", _rate_chart(compiled, "compile rate")),
    ]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            rates=rates,
            curves=data.curves,
            statuses=sorted(
                {status for stage in data.stages.values() for status in stage.statuses}
            ),
            median_speedup=median_speedup,
            share=percent,
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


def _rate_chart(stages: Mapping[str, Share], name: str) -> str:
    bars = []
    for i, (label, found) in enumerate(stages.items()):
        low, high = found.ci95 or (0.0, 1.0)
        text = f"{percent(found)} ({found.count} of {found.n})"
        bars.append(
            IntervalBar(
                name=label,
                rate=found.rate or 0.0,
                low=low,
                high=high,
                text=text,
                colour=i % 6 + 1,
            )
        )
    return interval_chart(bars, title=f"{name} by stage, with 95% intervals")

"""The training curves of a whole run's report: the viewer's charts, drawn without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_framework.evaluation.charts import Series, line_chart
from coding_framework.viewer.charts import Options, charts_of
from coding_framework.viewer.runs import FoundRun

SHOWN = ("rl-solved", "rl-reward", "rl-funnel", "rl-tiers", "sft-loss", "sft-held-out")
"""Charts of the viewer, by their ids; it has more."""


def training_curves(folder: Path) -> tuple[tuple[str, str], ...]:
    """(title, chart) of the trainings in a run's folder; none of one that did not run."""
    run = FoundRun(id="", name="", group="", kind="whole run", root=folder)
    found = {chart["id"]: chart for chart in charts_of(run, Options())}
    return tuple((found[name]["title"], _drawn(found[name])) for name in SHOWN if name in found)


def _drawn(chart: Mapping[str, Any]) -> str:
    """The chart as SVG; of one step the numbers in words."""
    lines: Sequence[Mapping[str, Any]] = chart["series"]
    band: tuple[tuple[float, float, float], ...] = ()
    if chart["bands"]:  # around the first line
        ((low, high),) = chart["bands"]
        ends = zip(chart["x"], lines[low]["values"], lines[high]["values"], strict=True)
        band = tuple(end for end in ends if None not in end)
        lines = lines[:1]
    series = [
        Series(
            name=line["name"],
            points=tuple(
                point for point in zip(chart["x"], line["values"], strict=True) if None not in point
            ),
            band=band,
            colour=i % 5 + 2,
        )
        for i, line in enumerate(lines)
    ]
    if max(len(s.points) for s in series) == 1:
        told = (f"{s.name}: {s.points[0][1]:.4g}" for s in series if s.points)
        return f"{', '.join(told)} (one measurement)"
    share = chart["unit"].startswith("share")
    return line_chart(
        series, x_label=chart["x_label"], y_label=chart["unit"], y_from_zero=True, share=share
    )

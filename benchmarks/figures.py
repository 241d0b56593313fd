"""The pictures of docs/RESULTS.md, drawn from benchmarks/results.

    uv run python benchmarks/figures.py

Writes docs/figures/*.svg; the same results give the same files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from bench_io import RESULTS, ROOT
from markupsafe import Markup

from coding_framework.evaluation.charts import (
    IntervalBar,
    Series,
    interval_chart,
    line_chart,
    standalone,
)
from coding_framework.paths import write_atomic

FIGURES = ROOT / "docs" / "figures"


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def put(name: str, chart: Markup) -> None:
    """A chart with colours of its own, as a file that a page can show."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    write_atomic(FIGURES / name, standalone(chart))
    print(FIGURES / name)


def points(rows: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in rows)


def main() -> int:
    sft, rl, held_out = (loaded(f"{n}.h200.json") for n in ("sft.best", "training", "held_out"))
    losses = (
        Series(name="training batch", points=points(sft["loss"]), colour=1),
        Series(
            name="held out",
            points=points([(e["step"], e["held_out_loss"]) for e in sft["epochs"]]),
            colour=2,
        ),
    )
    put("sft_loss.svg", line_chart(losses, x_label="step", y_label="nats per answer token"))
    names = (("compile", "compiled"), ("correct", "correct turns"), ("reward", "reward"))
    curves = [
        Series(name=said, points=points([(s["step"], s[key]) for s in rl["curve"]]), colour=i)
        for i, (key, said) in enumerate(names, start=1)
    ]
    put("rl_steps.svg", line_chart(curves, x_label="step", y_label="share", y_from_zero=True))
    runs = ("GRPO", "training"), ("DAPO", "training.dapo"), ("PPO", "training.ppo")
    solved = [
        Series(
            name=said, colour=i,
            points=points([(s["step"], s["solved"]) for s in loaded(f"{name}.h200.json")["curve"]]),
        )
        for i, (said, name) in enumerate(runs, start=1)
    ]  # fmt: skip
    put(
        "rl_algorithms.svg",
        line_chart(solved, x_label="step", y_label="conversations solved", y_from_zero=True),
    )
    from_base = loaded("training.from_base.h200.json")["curve"]
    curves = [
        Series(name=said, points=points([(s["step"], s[key]) for s in from_base]), colour=i)
        for i, (key, said) in enumerate(names, start=1)
    ]
    put("rl_from_base.svg", line_chart(curves, x_label="step", y_label="share", y_from_zero=True))
    bars = []
    for tier in sorted(held_out["tiers"]):
        for colour, label, said in (
            (2, "base", "base"), (3, "sft_500", "SFT 500"), (1, "sft", "SFT 2780"),
        ):  # fmt: skip
            row = held_out["models"][label]["tiers"][tier]
            low, high = row["ci95"]
            bars.append(
                IntervalBar(
                    name=f"{said}, tier {tier}", rate=row["rate"], low=low, high=high,
                    text=f"{row['rate']:.0%} of {row['tasks']}", colour=colour,
                )
            )  # fmt: skip
    put("held_out.svg", interval_chart(bars, title="pass@1 on held-out tasks by tier"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

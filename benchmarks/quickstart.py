"""The main job against its bars: runs it, or reads what a run left.

    uv run python benchmarks/quickstart.py --output-dir DIR [--read-only] [--loaded]

`cuda-rl quickstart` in DIR (resumable; an idle machine is wanted, since the bars bound time and
memory). With --read-only a finished run's DIR is read and nothing runs. Prints the bars, writes
benchmarks/results/quickstart.json.

A processor that computes in AVX2 only is stood in for by

    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2

before the command: PyTorch's, oneDNN's and MKL's kernels, not the emulator's, keep to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_io import RESULTS, bar, finish, head, this_machine

from coding_framework.evaluation.summary import Summary

RL_STEPS = 4
WALL_S, MEMORY_GIB = 20 * 60.0, 12e9 / 2**30
LOADED = 2.5
"""Times as long as an idle machine, beside two busy loops."""
FORECAST = 0.3
"""Of the truth: how far the first estimate may be off."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument(
        "--loaded",
        action="store_true",
        help="two busy loops run beside it: the bar on time is 2.5 times an idle run's",
    )
    parser.add_argument("--results", type=Path, default=RESULTS / "quickstart.json")
    args = parser.parse_args()
    machine = this_machine()
    if not args.read_only:
        command = [
            sys.executable, "-m", "coding_framework.cli", "quickstart",
            "--output-dir", str(args.output_dir),
        ]  # fmt: skip
        subprocess.run(command, check=True)
    text = (args.output_dir / "summary.json").read_text(encoding="utf-8")
    summary = Summary.model_validate_json(text)
    stages = json.loads((args.output_dir / "stages.json").read_text(encoding="utf-8"))["stages"]
    record = {
        **head(
            "quickstart",
            machine={**machine, "note": args.note},
            versions=summary.environment,
            command="make quickstart",
        ),
        "bars": [*measured_bars(summary, _wall_bar_s(args.loaded)), forecast_bar(stages)],
        "measured_at_start": stages["model"]["result"],
        "summary": json.loads(text),
    }
    return 0 if finish(record, args.results) else 1


def _wall_bar_s(loaded: bool) -> float:
    if not loaded:
        return WALL_S
    idle = json.loads((RESULTS / "quickstart.json").read_text(encoding="utf-8"))
    return LOADED * float(idle["summary"]["wall_s"])


def measured_bars(summary: Summary, wall_s: float) -> list[dict[str, Any]]:
    """Each bar with its target, what was measured, and whether it holds."""
    base, sft, rl = (summary.stages[label] for label in ("base", "sft", "rl"))
    practice = summary.practice
    assert practice is not None, "a quickstart practises"
    peak = max(cost.peak_memory_gib for cost in summary.costs.values())
    steps = summary.rl.steps_with_gradient
    margin = sft.correct.ci95[0] - base.correct.ci95[1]
    return [
        bar(
            "lower 95% end of SFT's pass rate minus the base model's upper end, above",
            0.0,
            margin,
            margin > 0.0,
        ),
        bar(
            "share of right answers to the practised tasks after RFT, above that before",
            practice.before.rate,
            practice.after.rate,
            practice.clear,
        ),
        bar("RL steps with a gradient, at least", RL_STEPS, steps, steps >= RL_STEPS),
        bar(
            "upper 95% end of the pass rate after RL, at least the rate after SFT",
            sft.correct.rate,
            rl.correct.ci95[1],
            rl.correct.ci95[1] >= sft.correct.rate,
        ),
        bar("wall time in s, at most", wall_s, summary.wall_s, summary.wall_s <= wall_s),
        bar("resident memory in GiB, at most", MEMORY_GIB, peak, peak <= MEMORY_GIB),
    ]


def forecast_bar(stages: Mapping[str, Any]) -> dict[str, Any]:
    """The estimate that the first stage gave for the others, against what they took."""
    planned = sum(stages["model"]["result"]["planned_s"].values())
    took = sum(s["wall_s"] for name, s in stages.items() if name != "model")
    off = planned / took - 1
    return bar("first estimate off the truth, at most", FORECAST, off, abs(off) <= FORECAST)


if __name__ == "__main__":
    sys.exit(main())

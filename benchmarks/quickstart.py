"""The main job against its bars: runs it, or reads what a run left.

    uv run python benchmarks/quickstart.py --output-dir DIR [--read-only]

`cuda-rl quickstart` with the full recipe in DIR (about 20 minutes on 2 cores, resumable; an idle
machine is wanted, since the bars bound time and memory). With --read-only a finished run's DIR is
read and nothing runs. Prints the bars, writes benchmarks/results/quickstart.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coding_framework.evaluation.summary import Summary
from coding_framework.paths import write_json_atomic

ROOT = Path(__file__).resolve().parent.parent
HELD_OUT, RL_STEPS = 40, 4
WALL_S, MEMORY_GIB = 20 * 60.0, 12e9 / 2**30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "quickstart.json"
    )
    args = parser.parse_args()
    if not args.read_only:
        command = [
            sys.executable, "-m", "coding_framework.cli", "quickstart",
            "--output-dir", str(args.output_dir),
        ]  # fmt: skip
        subprocess.run(command, check=True)
    text = (args.output_dir / "summary.json").read_text(encoding="utf-8")
    summary = Summary.model_validate_json(text)
    bars = measured_bars(summary)
    record = {
        "benchmark": "quickstart",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "platform": platform.platform(),
            "note": args.note,
        },
        "versions": summary.environment,
        "command": "make quickstart",
        "commit": _output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]),
        "bars": bars,
        "summary": json.loads(text),
    }
    write_json_atomic(args.results, record)
    for bar in bars:
        print(f"{'holds' if bar['holds'] else 'FAILS'}  {bar['value']} ({bar['bar']})")
    return 0


def measured_bars(summary: Summary) -> list[dict[str, Any]]:
    """Each bar with its target, what was measured, and whether it holds."""
    base, sft, rl = (summary.stages[label] for label in ("base", "sft", "rl"))
    peak = max(cost.peak_memory_gib for cost in summary.costs.values())
    steps = summary.rl.steps_with_gradient
    margin = sft.passed.ci95[0] - base.passed.ci95[1]
    return [
        _bar("held-out tasks, at least", HELD_OUT, sft.n, sft.n >= HELD_OUT),
        _bar(
            "lower 95% end of SFT's pass rate minus the base model's upper end, above",
            0.0,
            margin,
            margin > 0.0,
        ),
        _bar("RL steps with a gradient, at least", RL_STEPS, steps, steps >= RL_STEPS),
        _bar(
            "upper 95% end of the pass rate after RL, at least the rate after SFT",
            sft.pass_rate,
            rl.passed.ci95[1],
            rl.passed.ci95[1] >= sft.pass_rate,
        ),
        _bar("wall time in s, at most", WALL_S, summary.wall_s, summary.wall_s <= WALL_S),
        _bar("resident memory in GiB, at most", MEMORY_GIB, peak, peak <= MEMORY_GIB),
    ]


def _bar(bar: str, target: float, value: float, holds: bool) -> dict[str, Any]:
    return {"bar": bar, "target": round(target, 4), "value": round(value, 4), "holds": holds}


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

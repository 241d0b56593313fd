"""`cuda-rl tasks build` from an empty cache: wall time, a kill in between, a second run.

    uv run python benchmarks/tasks_build.py [--tasks N] [--kill-after SECONDS] [--keep FILE]

The command is started, killed with SIGKILL together with all it started, and started again until
it ends; then once more. The package's receipts are left aside, so that everything is judged. Prints
a table, writes benchmarks/results/tasks_build.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench_io import at_most, finish, head

from coding_framework.data.synthesis.receipts import load_receipts

COLD_TARGET_MIN = 120.0
AGAIN_TARGET_S = 30.0
COMMAND = """
from coding_framework.data.synthesis import receipts
receipts.packaged_receipts = lambda: {}
from coding_framework.cli import main
raise SystemExit(main())
"""
"""The command line, without what ships with the package."""


def build(tasks: int, cache: Path, kill_after: float | None) -> tuple[float, int]:
    """(wall seconds, exit status) of one run in a session of its own."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "tasks", "build", "--tasks", str(tasks)],
        env={**os.environ, "CUDA_RL_CACHE": str(cache)},
        start_new_session=True,
    )
    try:
        process.wait(kill_after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return time.monotonic() - started, process.returncode


def judged_keys(cache: Path) -> list[tuple[str, str]]:
    """The key of every line of the receipts, a kernel judged twice included twice."""
    path = cache / "datasets" / "receipts.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(e["task_digest"], e["kernel_sha256"]) for e in map(json.loads, lines)]


def run(tasks: int, kill_after: float, keep: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tasks_build_") as folder:
        cache = Path(folder)
        first_s, _ = build(tasks, cache, kill_after)
        path = cache / "datasets" / "receipts.jsonl"
        before = set(load_receipts(path)) if path.exists() else set()
        rest_s, status = build(tasks, cache, None)
        again_s, again_status = build(tasks, cache, None)
        keys = judged_keys(cache)
        if keep is not None:
            shutil.copyfile(path, keep)
        statuses = Counter(r.verdict.status.value for r in load_receipts(path).values())
    twice = len(keys) - len(set(keys))
    lost = len(before - set(keys))
    cold_min = (first_s + rest_s) / 60
    return {
        **head("tasks_build"),
        "bars": [
            at_most("minutes to judge the kernels of all tasks, cold", COLD_TARGET_MIN, cold_min),
            at_most("seconds of a second run", AGAIN_TARGET_S, again_s),
            at_most("kernels judged twice after a SIGKILL", 0, twice),
            at_most("receipts lost by a SIGKILL", 0, lost),
        ],
        "tasks": tasks,
        "kernels_judged": len(keys),
        "judged_before_the_kill": len(before),
        "kill_after_s": kill_after,
        "statuses": dict(statuses),
        "exit_statuses": [status, again_status],
        "kernels_per_minute": round(len(keys) / cold_min, 1) if cold_min else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--kill-after", type=float, default=120.0)
    parser.add_argument("--keep", type=Path, help="where to copy the receipts")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    figures = run(args.tasks, args.kill_after, args.keep)
    print(f"{figures['kernels_judged']} kernels judged: {figures['statuses']}")
    return 0 if finish(figures, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())

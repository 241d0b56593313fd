"""Processor seconds of a verdict, of this code and of an earlier commit, by turns.

    uv run python benchmarks/verdict_cost.py --against COMMIT [--kernels 8] [--turns 2]

Shipped kernels of tasks drawn at random are judged by the emulator, by either code in turn, in
fresh processes of one interpreter, each turn on other inputs. What a run of one verdict takes is
subtracted, so that no start counts; the first turn, which compiles, is left out. CPU time of all
descendants, so that a busy machine may be used; it makes both dearer. Prints a table, writes
benchmarks/results/verdict_cost.json; exit 1 where the bar does not hold.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_io import ROOT, bar, finish, head

LEAST_RATE = 0.8
"""Verdicts of this code for each one of the earlier commit, at equal cost."""
_PR_SET_CHILD_SUBREAPER = 36
_JUDGE = """
import json, sys
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.data.registry import find_task
from coding_framework.types import Candidate
seed, count = int(sys.argv[1]), int(sys.argv[2])
judge = Judge(JudgeConfig(seed=seed))
for task, code in json.load(sys.stdin)[:count]:
    verdict = judge.judge(find_task(task), Candidate(code=code))
    assert verdict.correct, (task, verdict.reason)
"""


def drawn_kernels(count: int) -> list[tuple[str, str]]:
    """(task, source) of a kernel of each of so many tasks with receipts."""
    from coding_framework.data.synthesis import catalog
    from coding_framework.data.synthesis.receipts import load_receipts

    draw = random.Random(3)
    names = sorted({receipt.task for receipt in load_receipts().values()})
    kernels = ((name, catalog.kernels_of(name)) for name in draw.sample(names, 2 * count))
    return [(name, draw.choice(found).code) for name, found in kernels if found][:count]


def cpu_s(source: Path, kernels: list[tuple[str, str]], seed: int, count: int) -> float:
    """Processor time of `count` verdicts by the code in `source`, with all their processes."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    command = [sys.executable, "-c", _JUDGE, str(seed), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=source)
    assert process.stdin is not None
    process.stdin.write(json.dumps(kernels).encode())
    process.stdin.close()
    spent, code = 0.0, 1
    while True:  # its orphans, too: see main
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        spent += usage.ru_utime + usage.ru_stime
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    if code != 0:
        raise SystemExit(f"a run of {source} ended with exit code {code}: see above")
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True, help="a commit")
    parser.add_argument("--kernels", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kernels = drawn_kernels(args.kernels)
    costs: dict[str, list[float]] = {"before": [], "now": []}
    with TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(before), args.against], check=True)
        try:
            for turn in range(args.turns + 1):
                for name, source in (("before", before), ("now", ROOT)):
                    whole = cpu_s(source, kernels, turn, len(kernels))
                    if turn == 0:
                        continue
                    one = cpu_s(source, kernels, turn, 1)
                    costs[name].append((whole - one) / (len(kernels) - 1))
                    print(f"turn {turn}, {name}: {costs[name][-1]:.3f} s a verdict", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    medians = {name: statistics.median(found) for name, found in costs.items()}
    rate = medians["before"] / medians["now"]
    text = "verdicts for each one of the earlier commit, without compilations"
    body = {"against": args.against, "tasks": [name for name, _ in kernels], "cpu_s": costs}
    bars = [bar(text, f">= {LEAST_RATE}", round(rate, 3), rate >= LEAST_RATE)]
    top = head("verdict_cost", packages=("torch", "nvidia-cuda-nvcc"))
    return 0 if finish({**top, "bars": bars, **body}) else 1


if __name__ == "__main__":
    sys.exit(main())

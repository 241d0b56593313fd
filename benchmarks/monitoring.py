"""What the watching of a run costs: a look at the machine, a heartbeat, a counted verdict.

    uv run benchmarks/monitoring.py --processes 60 --looks 100

A look is measured with so many processes of the run, as RL has them, in seconds of CPU of the
thread; the sampler's share of a core follows from them and from its own interval.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from bench_io import at_most, finish, head, this_machine

from coding_framework.monitoring.judge_watch import JudgeWatch
from coding_framework.monitoring.run_watch import SAMPLE_S, RunWatch, pause_s
from coding_framework.monitoring.sampler import SystemSampler
from coding_framework.store.run_status import append_system
from coding_framework.types import Status, Verdict

VERDICT = Verdict(
    status=Status.COMPILE_ERROR, reason="r", task="t", candidate_sha256="0", backend="emulator"
)


def cost_s(work: Callable[[], object], count: int) -> list[float]:
    """CPU of this thread, of each call."""
    costs = []
    for _ in range(count):
        before = time.thread_time()
        work()
        costs.append(time.thread_time() - before)
    return costs


def looks(folder: Path, count: int) -> tuple[list[float], int]:
    """CPU of each look with its line written, and what the sampler holds in memory."""
    before = psutil.Process().memory_info().rss
    sampler = SystemSampler(folder)
    sampler.sample()  # the first one reads every command line
    costs = cost_s(lambda: append_system(folder, sampler.sample()), count)
    return costs, psutil.Process().memory_info().rss - before


def beats(folder: Path, count: int) -> list[float]:
    watch = RunWatch(folder, "rl")
    return cost_s(watch._beat, count)


def verdicts(count: int) -> float:
    """Seconds that counting one verdict takes."""
    watch = JudgeWatch(None, workers=2)

    def one() -> None:
        job = watch.join()
        watch.began(job)
        watch.ended(job, VERDICT, known=False)
        watch.leave(job)

    before = time.thread_time()
    for _ in range(count):
        one()
    return (time.thread_time() - before) / count


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--processes", type=int, default=60, help="of the run, beside this one")
    cli.add_argument("--looks", type=int, default=100, help="at the machine")
    cli.add_argument("--output", type=Path, help="default: benchmarks/results/monitoring.json")
    args = cli.parse_args()
    machine = this_machine()
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(args.processes)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            look, memory = looks(Path(folder), args.looks)
            beat = beats(Path(folder), 20)
    finally:
        for child in children:
            child.kill()
            child.wait()
    shares = [c / (c + pause_s(SAMPLE_S, c)) for c in look]
    verdict = verdicts(10_000)
    report = {
        **head("monitoring", packages=("psutil", "nvidia-ml-py"), machine=machine),
        "processes": {"run": args.processes + 1, "machine": len(psutil.pids())},
        "look_cpu_s": {"median": statistics.median(look), "most": max(look)},
        "heartbeat_cpu_s": {"median": statistics.median(beat), "most": max(beat)},
        "verdict_cpu_s": verdict,
        "bars": [
            at_most("sampler: share of a core", 0.01, statistics.fmean(shares)),
            at_most("sampler: memory, MB", 30.0, memory / 1e6),
            at_most("heartbeat: share of a core", 0.01, statistics.median(beat) / 5.0),
            at_most("judge watch: CPU of a verdict, s", 0.001, verdict),
        ],
    }
    return 0 if finish(report, args.output) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Verdicts an hour on a GPU, with the full protocol.

    uv run python benchmarks/gpu_throughput.py --part ours [--kernels 4000] [--workers 12]
    uv run python benchmarks/gpu_throughput.py --part report

ours: `cuda-rl judge-many` on different synthesised kernels (all those of tasks drawn at random, in
a random order but for a task's naive kernel, which comes before those that are put beside it),
nothing of them compiled before, without PyTorch's times beside them (those are kept from run to
run). After so many minutes it is stopped. Naive kernels, the slowest ones, are most of a stopped
run's, so the rate of a run to its end is the true one. It counts from the first verdict on
(processes and contexts take some seconds to come up, once) and, apart, from the start.
Rows are kept in runs/gpu_throughput (or --work DIR).
Writes benchmarks/results/gpu_throughput.GPU.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from contextlib import suppress
from pathlib import Path

from bench_io import bar
from gpu_bench import Rows, this_gpu, write_report
from judging import Pair, fresh_cache, honest_pairs, judge_many, lines_of, write_pairs

from coding_framework.cuda.toolchain.slots import available_cores

VERDICTS_AN_HOUR, AIM = 25_000, 40_000
_LOOK_S = 0.5


def mixed_pairs(count: int) -> list[Pair]:
    """So many kernels, all those of some tasks, mixed: tasks and places are drawn at random, but in
    each run alike. The kernels of one task keep their order, the naive one first."""
    of_task: dict[str, deque[Pair]] = defaultdict(deque)
    for pair in honest_pairs():
        of_task[pair["task"]].append(pair)
    generator = random.Random(0)
    tasks = sorted(of_task)
    generator.shuffle(tasks)
    places = [task for task in tasks for _ in of_task[task]][:count]
    generator.shuffle(places)
    return [of_task[task].popleft() for task in places]


def run_ours(rows: Rows, kernels: int, minutes: float, options: list[str]) -> None:
    """`judge-many` on so many, for so long; how many verdicts had come when, and what they were."""
    pairs = rows.folder / f"pairs{kernels}.jsonl"
    if not pairs.exists():
        write_pairs(pairs, mixed_pairs(kernels))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        output = work / "verdicts.jsonl"
        command = judge_many(pairs, output, "--backend", "cuda", "--baselines", "none", *options)
        samples = []
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            env=fresh_cache(work / "cache"),
        )  # fmt: skip
        while process.poll() is None and time.monotonic() - started < 60 * minutes:
            time.sleep(_LOOK_S)
            samples.append((round(time.monotonic() - started, 2), _count(output)))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            said = process.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[1]
        verdicts = lines_of(output)
    statuses = Counter(v.get("status", "error") for v in verdicts)
    wrong = [
        {"id": v["id"], "status": v.get("status"), "why": v.get("reason", v.get("error"))}
        for v in verdicts
        if v.get("status") != "correct"
    ]
    timed = [v["timing"] for v in verdicts if v.get("timing")]
    rows.add(
        "ours",
        {
            "samples": samples[:: max(1, len(samples) // 20)],
            "rate": rate(samples),
            "rate_from_the_start": rate(samples, from_start=True),
            "rate_of_the_last_two_minutes": rate(
                [s for s in samples if s[0] > samples[-1][0] - 120]
            ),
            "kernels": kernels,
            "verdicts": len(verdicts),
            "statuses": statuses,
            "not_correct": wrong[:40],
            "measured": sum(not t["modelled"] for t in timed),
            "duration_s": _spread([v["receipt"]["duration_s"] for v in verdicts if "receipt" in v]),
            "options": options,
            "said": said.decode(errors="replace")[-1500:],
        },
    )
    if not verdicts:
        print(said.decode(errors="replace")[-1500:])
    print(f"{len(verdicts)} verdicts, {rate(samples):.0f} an hour; {dict(statuses)}")


def rate(samples: list[tuple[float, int]], *, from_start: bool = False) -> float:
    """Verdicts an hour, from the first verdict to the last look, or from the start."""
    begun = [(0.0, 0)] if from_start else [s for s in samples if s[1] > 0][:1]
    if not begun or not samples or samples[-1][0] <= begun[0][0]:
        return 0.0
    (t0, n0), (t1, n1) = begun[0], samples[-1]
    return 3600 * (n1 - n0) / (t1 - t0)


def _count(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0


def _spread(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=20)
    return {"p5": cuts[0], "median": statistics.median(values), "p95": cuts[-1]}


def report(rows: Rows) -> bool:
    """Bars and figures."""
    by = {row["key"]: row for row in rows}
    ours = by.get("ours", {})
    hourly = ours.get("rate", 0.0)
    statuses = ours.get("statuses", {})
    wrong = sum(n for status, n in statuses.items() if status != "correct")
    share = wrong / max(1, sum(statuses.values()))
    bars = [
        bar("verdicts an hour", VERDICTS_AN_HOUR, round(hourly), hourly >= VERDICTS_AN_HOUR),
        bar("verdicts an hour, the aim", AIM, round(hourly), hourly >= AIM),
        bar("honest kernels that were not correct", 0.01, share, bool(statuses) and share <= 0.01),
    ]  # fmt: skip
    return write_report("gpu_throughput", bars, {"rows": list(rows)})


def main() -> int:
    """One part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=("ours", "report"), required=True)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--kernels", type=int, default=4000)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--work", type=Path, help="folder of the rows")
    args = parser.parse_args()
    this_gpu()
    rows = Rows("gpu_throughput", args.work)
    if args.part == "ours":
        options = ["--workers", str(args.workers), "--sandbox", args.sandbox]
        run_ours(rows, args.kernels, args.minutes, options)
    else:
        return 0 if report(rows) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How many verdicts an hour on kernels that were never compiled, and how soon the first one.

    uv run python benchmarks/judge_throughput.py [--kernels 800] [--workers N] [--sandbox auto]
                                                 [--minutes M] [--work DIR]

`cuda-rl judge-many` judges that many different kernels (20 minutes at the bar). Run again it goes
on where it was killed, or where `--minutes` ended it; all time counts, the starts of the processes
too. First verdict: `cuda-rl judge` of a kernel that was never compiled, from the start of the
process to its end, median of 5. An idle machine is wanted. Memory is judge_soak.py's matter. Prints
a table, writes benchmarks/results/judge_throughput.json when all are judged; exits 1 where a bar
does not hold or kernels are left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from bench_io import ROOT, bar, finish, head
from judging import (
    PACKAGES,
    folder_of,
    fresh_cache,
    honest_pairs,
    judge_many,
    judged_in,
    lines_of,
    watch,
    write_pairs,
)

from coding_framework.store.lines import read_lines

VERDICTS_AN_HOUR, FIRST_S = 2500, 3.0


def throughput(samples: list[dict[str, Any]]) -> tuple[float, int]:
    """Verdicts an hour over all segments, process starts included, and how many verdicts."""
    last = {s["segment"]: s for s in samples}.values()
    seconds = sum(s["s"] for s in last)
    done = sum(s["verdicts"] - s["before"] for s in last)
    return 3600 * done / seconds, done


def first_verdicts(work: Path, sandbox: str, repeats: int = 5) -> list[float]:
    """Seconds from the start of `cuda-rl judge` to its end, on kernels that are new each time."""
    source = (ROOT / "examples" / "relu.cu").read_text()
    environment = fresh_cache(work / "first_cache")
    command = [sys.executable, "-m", "coding_framework.cli", "judge", "--task", "relu"]
    command += ["--kernel", "-", "--json", "--sandbox", sandbox]
    seconds = []
    for i in range(repeats + 1):  # the first finds the files in no memory
        fresh = f"{source}\n// {os.getpid()} {i}\n__device__ int fresh_{os.getpid()}_{i};\n"
        started = time.monotonic()
        done = subprocess.run(
            command, input=fresh.encode(), capture_output=True, env=environment, check=True
        )
        seconds.append(round(time.monotonic() - started, 3))
        assert json.loads(done.stdout)["status"] == "correct", done.stdout[:500]
    shutil.rmtree(work / "first_cache", ignore_errors=True)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=800)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end this part after these")
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "judge_throughput")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes
    options = ["--sandbox", args.sandbox]
    options += ["--workers", str(args.workers)] if args.workers else []
    pairs = list(islice(honest_pairs(), args.kernels))
    work = folder_of(args.work, pairs, options)
    work.mkdir(parents=True, exist_ok=True)
    write_pairs(work / "pairs.jsonl", pairs)
    output = work / "verdicts.jsonl"
    if len(judged_in(output)) < len(pairs):
        watch(
            "judging",
            judge_many(work / "pairs.jsonl", output, *options),
            output,
            len(pairs),
            environment=fresh_cache(work / "cache"),
            samples=work / "samples.jsonl",
            deadline=deadline,
        )
    verdicts = lines_of(output)
    samples = [json.loads(line) for line in read_lines(work / "samples.jsonl")]
    rate, done = throughput(samples)
    print(f"{done} of {len(pairs)} kernels, {rate:.0f} an hour")
    if len(judged_in(output)) < len(pairs):
        print("kernels are left: run the same command again")
        return 1
    first = first_verdicts(work, args.sandbox)
    median_first = statistics.median(first[1:])
    bars = [
        bar(
            "distinct kernels judged an hour",
            VERDICTS_AN_HOUR,
            round(rate),
            rate >= VERDICTS_AN_HOUR,
        ),
        bar("first verdict after the start (s)", FIRST_S, median_first, median_first <= FIRST_S),
    ]
    raw = {
        "sandbox": sorted({v["receipt"]["sandbox"] for v in verdicts if "receipt" in v}),
        "statuses": Counter(v.get("status", "error") for v in verdicts),
        "kernels": done,
        "first_verdicts_s": first,
        "samples": samples[:: max(1, len(samples) // 200)],
    }
    report = {**head("judge_throughput", packages=PACKAGES), "bars": bars, **raw}
    holds = finish(report)
    shutil.rmtree(work / "cache", ignore_errors=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

"""How many verdicts an hour, how much memory, how soon the first one.

    uv run python benchmarks/judge_throughput.py [--kernels 2000] [--workers N] [--sandbox auto]
                                                 [--work DIR]

`cuda-rl judge-many` judges that many different kernels, nothing of them compiled before; its memory
(with that of all its descendants, shared pages once) is looked at every 5 seconds. Run again with
the same folder it goes on where it was killed. First verdict: `cuda-rl judge` of a kernel that was
never compiled, from the start of the process to its end, median of 5. An idle machine is wanted.
Prints a table, writes benchmarks/results/judge_throughput.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
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

import psutil
from bench_io import ROOT, bar, finish, head
from judging import (
    PACKAGES,
    fresh_cache,
    honest_pairs,
    judge_many,
    lines_of,
    write_pairs,
)

from coding_framework.monitoring.jsonl import JsonlSink, read_lines
from coding_framework.monitoring.memory import resident_bytes

LOOK_S = 5.0
VERDICTS_AN_HOUR, FIRST_S, GROWTH = 2500, 3.0, 0.05


def judge_all(pairs: int, work: Path, options: list[str]) -> None:
    """Judge what is left, and write down time, verdicts and memory as it goes."""
    work.mkdir(parents=True, exist_ok=True)
    todo = work / "pairs.jsonl"
    if not todo.exists():
        write_pairs(todo, list(islice(honest_pairs(), pairs)))
    output = work / "verdicts.jsonl"
    command = judge_many(todo, output, *options)
    segment = f"{os.getpid()}-{time.time():.0f}"
    with JsonlSink(work / "samples.jsonl") as sink, (work / "log").open("ab") as log:
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=log, env=fresh_cache(work / "cache")
        )
        root = psutil.Process(process.pid)
        ended = False
        while not ended:
            try:
                process.wait(LOOK_S)
                ended = True
            except subprocess.TimeoutExpired:
                pass
            sample = {
                "segment": segment,
                "s": round(time.monotonic() - started, 2),
                "verdicts": len(lines_of(output)),
                "mib": None if ended else resident_bytes(root) >> 20,
            }
            sink.write(sample)
            print(f"\r{sample['verdicts']}/{pairs}  {sample['s']:.0f} s  ", end="", file=sys.stderr)
    print(file=sys.stderr)


def throughput(samples: list[dict[str, Any]]) -> tuple[float, int]:
    """Verdicts an hour over all segments, process starts included, and how many verdicts."""
    seconds, done, before = 0.0, 0, 0
    for segment in dict.fromkeys(s["segment"] for s in samples):
        last = [s for s in samples if s["segment"] == segment][-1]
        seconds += last["s"]
        done += last["verdicts"] - before
        before = last["verdicts"]
    return 3600 * done / seconds, done


def memory_growth(samples: list[dict[str, Any]]) -> dict[str, float]:
    """Median memory of the last quarter over that of the second, of the longest segment: in the
    first quarter caches of bounded size fill."""
    segments = Counter(s["segment"] for s in samples)
    longest = max(segments, key=lambda name: segments[name])
    seen = [s["mib"] for s in samples if s["segment"] == longest and s["mib"]]
    if len(seen) < 8:
        return {"early_mib": 0.0, "late_mib": 0.0, "growth": 0.0, "samples": len(seen)}
    quarter = len(seen) // 4
    early, late = (
        statistics.median(part) for part in (seen[quarter : 2 * quarter], seen[-quarter:])
    )
    return {
        "early_mib": early,
        "late_mib": late,
        "growth": round(late / early - 1, 4),
        "samples": len(seen),
    }


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
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--work", type=Path, default=ROOT / "outputs" / "judge_throughput")
    args = parser.parse_args()
    options = ["--sandbox", args.sandbox]
    options += ["--workers", str(args.workers)] if args.workers else []
    judge_all(args.kernels, args.work, options)
    samples = [json.loads(line) for line in read_lines(args.work / "samples.jsonl")]
    verdicts = lines_of(args.work / "verdicts.jsonl")
    rate, done = throughput(samples)
    memory = memory_growth(samples)
    first = first_verdicts(args.work, args.sandbox)
    median_first = statistics.median(first[1:])
    bars = [
        bar(
            "distinct kernels judged an hour",
            VERDICTS_AN_HOUR,
            round(rate),
            rate >= VERDICTS_AN_HOUR,
        ),
        bar(
            f"growth of memory over {done} verdicts, last quarter over second",
            GROWTH,
            memory["growth"],
            memory["growth"] <= GROWTH,
        ),
        bar("first verdict after the start (s)", FIRST_S, median_first, median_first <= FIRST_S),
    ]
    raw = {
        "sandbox": sorted({v["receipt"]["sandbox"] for v in verdicts if "receipt" in v}),
        "statuses": Counter(v.get("status", "error") for v in verdicts),
        "memory": memory,
        "first_verdicts_s": first,
        "samples": samples[:: max(1, len(samples) // 200)],
    }
    report = {**head("judge_throughput", packages=PACKAGES), "bars": bars, **raw}
    holds = finish(report)
    shutil.rmtree(args.work / "cache", ignore_errors=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

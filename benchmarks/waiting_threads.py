"""Four conversations of 64 tokens beside busy loops, by how torch's threads wait for each other.

    uv run python benchmarks/waiting_threads.py [--busy 2] [--tokens 64]

A token of SmolLM2-135M is some 400 parallel regions of tens of microseconds. At the end of each the
threads of the team wait for the slowest. libgomp lets them spin unless it is told otherwise; where
other processes want the cores, the one that spins keeps the core from the one it waits for. Writes
benchmarks/results/waiting_threads.json: seconds of the wall and of the processor for each way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench_io import RESULTS, bar, finish, head, this_machine

WAYS = {"spin": {"GOMP_SPINCOUNT": "300000"}, "sleep": {"OMP_WAIT_POLICY": "PASSIVE"}}
"""What is set in the environment. The first is what libgomp does where nothing is said."""
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
AT_MOST = 2.5
"""Times as long beside two busy loops: the bar of the main job."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--busy", type=int, default=2, help="loops that want a core each")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(generate(args.tokens, int(args.one))))
        return 0
    rows = []
    for busy in (0, args.busy):
        with loops(busy):
            for way, settings in WAYS.items():
                for threads in (1, len(os.sched_getaffinity(0)), 0):
                    row = {"busy": busy, "way": way, "threads": threads or "chosen"}
                    rows.append({**row, **measured(settings, threads, args.tokens)})
                    print(json.dumps(rows[-1]), flush=True)
    ours = {
        r["busy"]: r["wall_s"] for r in rows if r["way"] == "sleep" and r["threads"] == "chosen"
    }
    times = ours[args.busy] / ours[0]
    record = {
        **head("waiting_threads", machine={**this_machine(), "note": args.note}),
        "bars": [bar("times as long beside the loops, at most", AT_MOST, times, times <= AT_MOST)],
        "rows": rows,
    }
    return 0 if finish(record, RESULTS / "waiting_threads.json") else 1


def measured(settings: dict[str, str], threads: int, tokens: int) -> dict[str, Any]:
    """In a process of its own: libgomp reads the environment when it is loaded. The package's own
    choice of a number is off, unless threads is 0."""
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    base = {k: v for k, v in os.environ.items() if k not in ours}
    base |= settings
    command = [sys.executable, __file__, "--tokens", str(tokens), "--one", str(threads)]
    done = subprocess.run(command, env=base, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def generate(tokens: int, threads: int) -> dict[str, float]:
    """Four greedy conversations at once."""
    import asyncio
    import time

    from coding_framework.agents.models import resolve_model
    from coding_framework.agents.policies import TransformersPolicy
    from coding_framework.agents.threads import ThreadChoice
    from coding_framework.types import Message, SamplingParams

    policy = TransformersPolicy(resolve_model(MODEL), threads=threads or None)
    if threads:
        policy._generator._threads = ThreadChoice(1)  # which leaves torch's number alone
    sampling = SamplingParams(max_new_tokens=tokens, temperature=0.0)

    async def all_of_them() -> None:
        asked = [
            policy.generate((Message(role="user", content=f"Write {n} lines of CUDA."),), sampling)
            for n in range(20, 24)
        ]
        await asyncio.gather(*asked)

    asyncio.run(all_of_them())  # what is allocated once is not timed
    wall, cpu = time.monotonic(), time.process_time()
    asyncio.run(all_of_them())
    spent = {"wall_s": time.monotonic() - wall, "cpu_s": time.process_time() - cpu}
    policy.close()
    return {name: round(seconds, 2) for name, seconds in spent.items()}


@contextmanager
def loops(count: int) -> Iterator[None]:
    """So many processes that never rest."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())

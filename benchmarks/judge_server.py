"""Verdicts an hour of `cuda-rl judge-server` beside `judge-many`, and what is lost in kills.

    uv run python benchmarks/judge_server.py [--kernels 32] [--rounds 3] [--workers N]

By turns, on kernels that were never compiled: `judge-many` judges one half of a round's kernels,
and 16 clients ask the server for the other half; the halves are swapped from round to round. Starts
of processes count. Then a client is killed with a batch on its way, and a worker while it judges:
the server is asked for all these kernels again, and each must have a verdict. Prints a table,
writes benchmarks/results/judge_server.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from bench_io import ROOT, bar, finish, head, this_machine
from judging import PACKAGES, Pair, fresh_cache, honest_pairs, judge_many, judged_in, write_pairs

from coding_framework.integrations.client import JudgeClient

CLIENTS = 16
SHARE = 0.9
WORKER = "coding_framework.cuda.many.worker"
ASK_BATCH = (
    "import json, sys; from coding_framework.integrations.client import JudgeClient\n"
    "JudgeClient(sys.argv[1]).verdicts(json.load(open(sys.argv[2])))"
)


class Server:
    """A judge server of its own folder and cache."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "coding_framework.cli", "judge-server", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--folder", str(folder / "served"), *options],
            stdout=subprocess.PIPE,
            stderr=(folder / "server.log").open("w"),
            text=True,
            env=fresh_cache(folder / "cache"),
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def ask(self, pairs: Sequence[Pair]) -> int:
        """How many of them have a verdict, asked for by `CLIENTS` clients."""

        def one(pair: Pair) -> bool:
            return "status" in JudgeClient(self.url).verdict(pair["task"], pair["code"])

        with ThreadPoolExecutor(CLIENTS) as clients:
            return sum(clients.map(one, pairs))

    def a_worker(self) -> psutil.Process:
        """One that judges, once there is one."""
        while True:
            with suppress(psutil.Error):
                for child in psutil.Process(self.process.pid).children(recursive=True):
                    if WORKER in " ".join(child.cmdline()) and child.children():
                        return child
            time.sleep(0.05)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextmanager
def serving(folder: Path, options: Sequence[str]) -> Iterator[Server]:
    server = Server(folder, options)
    try:
        yield server
    finally:
        server.end()


def by_judge_many(pairs: Sequence[Pair], folder: Path, options: Sequence[str]) -> int:
    write_pairs(folder / "pairs.jsonl", pairs)
    output = folder / "verdicts.jsonl"
    command = judge_many(folder / "pairs.jsonl", output, *options)
    with (folder / "judge_many.log").open("w") as log:
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=log, check=True,
            env=fresh_cache(folder / "cache"),
        )  # fmt: skip
    return len(judged_in(output))


def by_server(pairs: Sequence[Pair], folder: Path, options: Sequence[str]) -> int:
    with serving(folder, options) as server:
        return server.ask(pairs)


WAYS = {"judge-many": by_judge_many, "judge-server": by_server}


def timed(way: str, pairs: Sequence[Pair], options: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        begin = time.perf_counter()
        done = WAYS[way](pairs, Path(name), options)
        wall = time.perf_counter() - begin
    row = {"way": way, "verdicts": done, "wall_s": round(wall, 1)}
    row["load"] = round(os.getloadavg()[0], 1)
    row["an_hour"] = round(3600 * done / wall)
    print(json.dumps(row), flush=True)
    return row


def kills(pairs: Sequence[Pair], options: Sequence[str]) -> dict[str, int]:
    """How many kernels have no verdict at the end, and how many were asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder, half = Path(name), len(pairs) // 2
        (folder / "batch.json").write_text(json.dumps(pairs[:half]))
        with serving(folder, options) as server, ThreadPoolExecutor(1) as aside:
            asking = [sys.executable, "-c", ASK_BATCH, server.url, str(folder / "batch.json")]
            client = subprocess.Popen(asking)
            server.a_worker()
            client.kill()
            client.wait()
            others = aside.submit(server.ask, pairs[half:])
            server.a_worker().kill()
            got = others.result() + server.ask(pairs[:half])
    return {"asked": len(pairs), "lost": len(pairs) - got}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=32, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    machine, options = this_machine(), ["--workers", str(args.workers), "--backend", "emulator"]
    pairs, turns = honest_pairs(), []
    for number in range(args.rounds):
        drawn = list(islice(pairs, 2 * args.kernels))
        halves = [drawn[::2], drawn[1::2]]
        ways = list(WAYS) if number % 2 == 0 else list(WAYS)[::-1]
        turns.append([timed(way, half, options) for way, half in zip(ways, halves, strict=True)])
    killed = kills(list(islice(pairs, CLIENTS)), options)
    print(json.dumps(killed))
    share = statistics.median(_share(turn) for turn in turns)
    said = f"verdicts an hour, share of judge-many's, median of {args.rounds} rounds"
    bars = [bar(said, SHARE, share, share >= SHARE)]
    asked = sum(row["verdicts"] for turn in turns for row in turn)
    wanted = 2 * args.kernels * args.rounds
    bars.append(bar("kernels with a verdict", wanted, asked, asked == wanted))
    bars.append(bar("verdicts lost where a client and a worker are killed", 0, killed["lost"],
                    killed["lost"] == 0))  # fmt: skip
    report = head("judge_server", packages=(*PACKAGES, "fastapi", "uvicorn"), machine=machine)
    whole = {"clients": CLIENTS, "workers": args.workers, "turns": turns, "kills": killed}
    return 0 if finish(report | whole | {"bars": bars}) else 1


def _share(turn: Sequence[dict[str, Any]]) -> float:
    rate = {row["way"]: row["an_hour"] for row in turn}
    return float(rate["judge-server"] / rate["judge-many"])


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())

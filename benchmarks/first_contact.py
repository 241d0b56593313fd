"""How long a newcomer waits for the first things that are tried.

    uv run python benchmarks/first_contact.py [--repeats 3]

Each command runs in a process of its own. Wall time is what a user sees, and is the bar's on an
idle machine; CPU seconds, of the command and of all that it waited for, say what it would be
without the others on a loaded one. The best of `--repeats` is taken: the first fills the caches.
`judge` has judged the kernel before; with `--fresh`, which has no bar, it finds its build in the
cache. `tasks list` and the misspelt task find the list that `make setup` has kept. The watch is
timed from a save to the verdict, Ctrl-C from the signal to the end: the worst of three moments and
of `judge` and two root scripts. Prints a table, writes benchmarks/results/first_contact.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_io import ROOT, at_most, finish, head, this_machine

RELU = ROOT / "examples" / "relu.cu"
CLI = [sys.executable, "-m", "coding_framework.cli"]
COMMANDS: dict[str, tuple[list[str], float | None, tuple[int, ...]]] = {
    "--help": ([*CLI, "--help"], 1.0, (0,)),
    "a misspelt command": ([*CLI, "juge"], 1.0, (2,)),
    "a misspelt task": ([*CLI, "judge", "--task", "reluu", "k.cu"], 1.0, (2,)),
    "tasks list": ([*CLI, "tasks", "list"], 1.0, (0,)),
    "tasks stats": ([*CLI, "tasks", "stats"], 3.0, (0,)),
    "judge of a cached kernel": ([*CLI, "judge", "--task", "relu", str(RELU)], 2.0, (0,)),
    "judge --fresh, its build cached": (
        [*CLI, "judge", "--task", "relu", str(RELU), "--fresh"], None, (0,),
    ),
    "dry run of RL": (
        [sys.executable, str(ROOT / "run_multiturn_rl_training.py"), "--dry-run"], 5.0, (0,),
    ),
    "doctor": ([*CLI, "doctor"], 30.0, (0, 3)),
}  # fmt: skip
"""Command, bar in seconds of wall time on an idle machine (None: told alone), right statuses."""
NEW: dict[str, tuple[list[str], Path, float]] = {
    "judge of a new kernel for a .py task": (
        [*CLI, "judge", "--task", str(RELU.with_name("scaled_tanh.py"))],
        RELU.with_name("scaled_tanh.cu"), 4.0,
    ),
    "explain of a new kernel": (
        [*CLI, "explain", "--task", "relu"], RELU.with_name("relu_wrong.cu"), 5.0,
    ),
}  # fmt: skip
"""Command, the kernel that it is given with a comment of its own each time, bar in seconds."""
WATCH_BAR_S = 1.0
STOP_BAR_S = 2.0
STOPPED_AFTER_S = (0.2, 1.0, 3.0)
STOPPED: tuple[list[str], ...] = (
    [*CLI, "judge", "--task", "relu", str(RELU), "--fresh"],
    [sys.executable, str(ROOT / "run_sft_training.py"), "--num-examples", "4"],
    [sys.executable, str(ROOT / "run_multiturn_rl_training.py"), "--dry-run"],
)
"""Commands that Ctrl-C ends while they import, or work."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    machine = this_machine()
    timed = {name: measured(*COMMANDS[name], repeats) for name in COMMANDS}
    timed |= {name: renewed(*NEW[name], repeats) for name in NEW}
    timed["judge --watch, a save"] = {"bar_s": WATCH_BAR_S, "wall_s": watched(repeats)}
    timed["Ctrl-C"] = {"bar_s": STOP_BAR_S, "wall_s": stopped()}
    for name, row in timed.items():
        cpu = f"{row['cpu_s']:8.2f} s CPU" if "cpu_s" in row else ""
        bar = f"of {row['bar_s']:g}" if row["bar_s"] else ""
        print(f"{name:<32} {row['wall_s']:8.2f} s {bar:<5} {cpu}")
    report: dict[str, Any] = {
        **head("first_contact", packages=("torch",), machine=machine),
        "commands": timed,
        "load_after": round(os.getloadavg()[0], 1),
        "bars": [
            at_most(f"{n}, seconds", r["bar_s"], r["wall_s"])
            for n, r in timed.items()
            if r["bar_s"] is not None
        ],
    }
    return 0 if finish(report) else 1


def measured(
    command: list[str], bar_s: float | None, right: tuple[int, ...], repeats: int
) -> dict[str, Any]:
    """The best wall time of the command, and the least CPU seconds."""
    found = [once(command, right) for _ in range(repeats)]
    walls, cpus = zip(*found, strict=True)
    return {"bar_s": bar_s, "wall_s": round(min(walls), 2), "cpu_s": round(min(cpus), 2)}


def renewed(command: list[str], kernel: Path, bar_s: float, repeats: int) -> dict[str, Any]:
    """As `measured`, of a kernel that was never compiled; the task was read before."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cu"
        found = []
        for number in range(repeats):
            file.write_text(f"{kernel.read_text()}// {number} {os.getpid()}\n")
            found.append(once([*command, str(file)], (0,)))
    walls, cpus = zip(*found, strict=True)
    return {"bar_s": bar_s, "wall_s": round(min(walls), 2), "cpu_s": round(min(cpus), 2)}


def once(command: list[str], right: tuple[int, ...]) -> tuple[float, float]:
    before, start = cpu_s(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    if done.returncode not in right:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return took, cpu_s() - before


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watched(repeats: int) -> float:
    """From a save to its verdict, where the kernel is compiled anew; the best."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cu"
        file.write_text(RELU.read_text())
        command = [*CLI, "judge", "--task", "relu", "--watch", str(file), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as judge:
            assert judge.stdout is not None
            judge.stdout.readline()
            best = float("inf")
            for number in range(repeats):
                start = time.perf_counter()
                file.write_text(f"{RELU.read_text()}// {number} {os.getpid()}\n")
                judge.stdout.readline()
                best = min(best, time.perf_counter() - start)
            judge.terminate()
    return round(best, 2)


def stopped() -> float:
    """From Ctrl-C to the end, at most."""
    with tempfile.TemporaryDirectory() as folder:
        return round(max(stop(c, s, folder) for c in STOPPED for s in STOPPED_AFTER_S), 2)


def stop(command: list[str], after_s: float, folder: str) -> float:
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(after_s)
        if process.poll() is not None:
            return 0.0
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        took = time.perf_counter() - start
    ended = process.returncode in (130, 0)  # 0: it had just come to its end
    if not ended or "Traceback" in said or said.count("stopped") > 1:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}: {said[-500:]}")
    return took


if __name__ == "__main__":
    raise SystemExit(main())

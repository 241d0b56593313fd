"""`cuda-rl doctor`: is every component there on this machine, and does it really work?

Each check does a small piece of the real work (compiles a kernel, breaks out of the sandbox, judges
a right and a wrong answer) instead of looking for a file. The answer is a table, or JSON. A check
that the main job cannot do without is `needed`; the machine is ready when all of these work.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coding_framework.errors import CodingFrameworkError, MissingToolError
from coding_framework.paths import cache_dir
from coding_framework.types import Record

GB = 1e9
NEEDED_DISK_GB = 5.0
"""Weights, native parts, compiled kernels and the checkpoints of one run."""
NEEDED_MEMORY_GB = 8.0
IMPORT_TIMEOUT_S = 180.0


class State(StrEnum):
    WORKS = "works"
    WEAK = "works, weaker"
    """The main job runs without it, with a loss that `fix` names."""
    MISSING = "missing"
    BROKEN = "broken"


class CheckResult(Record):
    """What one check found. Maker: `run_checks`. Consumers: the table and the JSON."""

    name: str
    state: State
    needed: bool
    """Whether the main job (`cuda-rl quickstart`) needs it."""
    detail: str
    fix: str = ""
    """How to get it, in a sentence; empty where it works."""
    seconds: float = 0.0

    @property
    def stops_the_main_job(self) -> bool:
        return self.needed and self.state in (State.MISSING, State.BROKEN)


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's answer, before its name and duration are added."""

    state: State
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    needed: bool
    run: Callable[[], Finding]


def works(detail: str) -> Finding:
    return Finding(State.WORKS, detail)


# --- the machine ----------------------------------------------------------------------------------


def check_python() -> Finding:
    version = platform.python_version()
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Finding(
            State.BROKEN, f"Python {version}", "use Python 3.11 or 3.12: uv python install 3.12"
        )
    return works(f"Python {version}, {sys.executable}")


def check_cpu_and_memory() -> Finding:
    cores = len(os.sched_getaffinity(0))
    total = psutil.virtual_memory().total
    limit = _cgroup_memory_limit()
    usable = min(total, limit) if limit else total
    detail = f"{cores} cores, {usable / GB:.0f} GB of memory"
    if usable < NEEDED_MEMORY_GB * GB:
        return Finding(
            State.WEAK,
            detail,
            f"the main job wants {NEEDED_MEMORY_GB:.0f} GB: close other programs, or run on a "
            "larger machine",
        )
    return works(detail)


def _cgroup_memory_limit() -> int | None:
    """The container's limit in bytes; None where there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (Path("/sys/fs/cgroup") / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None


def check_disk() -> Finding:
    folder = cache_dir()
    probe = folder / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
    except OSError as e:
        return Finding(
            State.BROKEN,
            f"{folder} cannot be written: {e.strerror}",
            "set CUDA_RL_CACHE to a folder that can be written and has room",
        )
    finally:
        probe.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    detail = f"{free / GB:.0f} GB free for {folder}"
    if free < NEEDED_DISK_GB * GB:
        return Finding(
            State.WEAK,
            detail,
            f"free {NEEDED_DISK_GB:.0f} GB, or set CUDA_RL_CACHE to a folder with room",
        )
    return works(detail)


def check_gpu() -> Finding:
    """Not needed: without a GPU the emulator runs what nvcc made."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        done = subprocess.run(
            [tool, *query], capture_output=True, text=True, timeout=30, check=False
        )
        if done.returncode == 0 and done.stdout.strip():
            return works("; ".join(done.stdout.strip().splitlines()))
    return Finding(
        State.MISSING,
        "none: kernels run in the emulator and their times are modelled",
        "nothing to do; for measured times use a machine with an NVIDIA GPU and its driver",
    )


# --- frameworks -----------------------------------------------------------------------------------


def _import_apart(code: str) -> Finding:
    """Runs `code` in a fresh interpreter; what it prints is the detail."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=IMPORT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding(State.BROKEN, last[:300], "run `make setup` to install the locked packages")
    return works(done.stdout.strip().splitlines()[-1])


def check_sft_stack() -> Finding:
    return _import_apart(
        "import torch, transformers, peft\n"
        "from trl import SFTConfig, SFTTrainer\n"
        "import trl\n"
        "for m in (torch, transformers, trl, peft): print(m.__name__, m.__version__, end='  ')"
    )


CHECKS: tuple[Check, ...] = (
    Check("python", True, check_python),
    Check("cpu and memory", True, check_cpu_and_memory),
    Check("disk", True, check_disk),
    Check("SFT: TRL, PEFT", True, check_sft_stack),
    Check("GPU", False, check_gpu),
)


# --- running and showing --------------------------------------------------------------------------


def run_check(check: Check) -> CheckResult:
    """Never raises: a check that fails in a way nobody foresaw is a broken component."""
    start = time.perf_counter()
    try:
        finding = check.run()
    except MissingToolError as e:
        finding = Finding(State.MISSING, "not found", str(e))
    except CodingFrameworkError as e:
        finding = Finding(State.BROKEN, "does not work", str(e))
    except Exception as e:
        finding = Finding(
            State.BROKEN, f"{type(e).__name__}: {e}"[:300], "run `make setup`, then this again"
        )
    return CheckResult(
        name=check.name,
        state=finding.state,
        needed=check.needed,
        detail=finding.detail,
        fix=finding.fix,
        seconds=round(time.perf_counter() - start, 2),
    )


def run_checks(
    checks: tuple[Check, ...] = CHECKS, progress: Callable[[CheckResult], None] | None = None
) -> tuple[CheckResult, ...]:
    """All checks, two at a time, in the order of `checks`. `progress` hears each as it ends."""

    def one(check: Check) -> CheckResult:
        result = run_check(check)
        if progress is not None:
            progress(result)
        return result

    with ThreadPoolExecutor(max_workers=2) as pool:
        return tuple(pool.map(one, checks))


def is_ready(results: tuple[CheckResult, ...]) -> bool:
    """Whether `cuda-rl quickstart` can run here."""
    return not any(r.stops_the_main_job for r in results)


STYLES = {State.WORKS: "green", State.WEAK: "yellow", State.MISSING: "red", State.BROKEN: "red"}


def show(results: tuple[CheckResult, ...], console: Console) -> None:
    table = Table(title="cuda-rl doctor", title_justify="left")
    for column in ("component", "state", "what was found, and how to get what is not there"):
        table.add_column(column, overflow="fold")
    for r in results:
        style = STYLES[r.state] if r.needed or r.state is State.WORKS else "yellow"
        state = f"[{style}]{r.state.value}[/]" + ("" if r.needed else " (not needed)")
        table.add_row(r.name, state, escape(r.detail + (f"\n→ {r.fix}" if r.fix else "")))
    console.print(table)
    if is_ready(results):
        console.print("This machine is ready: [bold]cuda-rl quickstart[/] runs here.")
    else:
        missing = ", ".join(r.name for r in results if r.stops_the_main_job)
        console.print(f"This machine is not ready; to be mended first: {escape(missing)}.")


class Report(Record):
    """What `cuda-rl doctor --json` prints."""

    ready: bool
    checks: tuple[CheckResult, ...]


def doctor(*, as_json: bool = False, checks: tuple[Check, ...] = CHECKS) -> int:
    """Checks everything, prints the table (or one JSON object) and returns the exit status:
    0 where the main job can run, 3 where not. Progress goes to stderr."""
    console = Console(stderr=True)

    def tell(result: CheckResult) -> None:
        console.print(
            f"doctor: {result.name}: {result.state.value} ({result.seconds:.1f} s)",
            markup=False,
            highlight=False,
        )

    results = run_checks(checks, tell)
    if as_json:
        print(Report(ready=is_ready(results), checks=results).model_dump_json(indent=2))
    else:
        show(results, Console())
    return 0 if is_ready(results) else 3


__all__ = ["CHECKS", "Check", "CheckResult", "State", "doctor", "is_ready", "run_checks"]

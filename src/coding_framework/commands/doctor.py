"""`cuda-rl doctor`: is every component there on this machine, and does it really work?

Each check (`doctor_checks.py`) does a small piece of the real work: compiles a kernel, tries to
break out of the sandbox, judges a right and a wrong answer. The answer is a table, or JSON. The
machine is ready when every check that the main job cannot do without works; where only the judge is
installed, every check that the judge cannot do without.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from coding_framework.commands.doctor_checks import (
    CHECKS,
    Check,
    Finding,
    State,
    checks_here,
)
from coding_framework.commands.failures import EXIT_OK, EXIT_OURS, how_to_get, trainers_installed
from coding_framework.commands.flags import add_command, add_json
from coding_framework.errors import CodingFrameworkError, MissingToolError
from coding_framework.types import Record

if TYPE_CHECKING:
    from rich.console import Console


def add_to(commands: Any) -> None:
    p = add_command(commands, "doctor", run, "Check every component on this machine.")
    add_json(p, "print the result as one JSON object")


def run(args: Namespace) -> int:
    return doctor(as_json=args.json)


class CheckResult(Record):
    """What one check found. Maker: `run_checks`. Consumers: the table and the JSON."""

    name: str
    state: State
    needed: bool
    """Whether the main job (`cuda-rl quickstart`) needs it; the judge, where no more is here."""
    detail: str
    fix: str = ""
    """How to get it, in a sentence; empty where it works."""
    seconds: float = 0.0

    @property
    def stops_the_main_job(self) -> bool:
        return self.needed and self.state in (State.MISSING, State.BROKEN)


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

    pool = ThreadPoolExecutor(max_workers=2)
    try:
        return tuple(pool.map(one, checks))
    finally:  # after Ctrl-C nobody waits for the checks that are left
        pool.shutdown(wait=False, cancel_futures=True)


def is_ready(results: tuple[CheckResult, ...]) -> bool:
    """Whether what is installed works: `cuda-rl quickstart`, or the judge alone."""
    return not any(r.stops_the_main_job for r in results)


STYLES = {State.WORKS: "green", State.WEAK: "yellow", State.MISSING: "red", State.BROKEN: "red"}


def show(results: tuple[CheckResult, ...], console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="cuda-rl doctor", title_justify="left")
    for column in ("component", "state", "s", "what was found, and how to get what is not there"):
        narrow = 16 if column == "component" else None
        table.add_column(column, overflow="fold", max_width=narrow)
    for r in results:
        style = STYLES[r.state] if r.needed or r.state is State.WORKS else "yellow"
        state = f"[{style}]{r.state.value}[/]" + ("" if r.needed else "\n(not needed)")
        table.add_row(
            r.name, state, f"{r.seconds:.1f}", escape(r.detail + (f"\n→ {r.fix}" if r.fix else ""))
        )
    console.print(table)
    if is_ready(results) and trainers_installed():
        console.print("This machine is ready: [bold]cuda-rl quickstart[/] runs here.")
    elif is_ready(results):
        console.print("This machine is ready to judge: [bold]cuda-rl judge[/] runs here.")
        console.print(f"To train as well, {how_to_get('train')}.", markup=False)
    else:
        missing = ", ".join(r.name for r in results if r.stops_the_main_job)
        console.print(f"This machine is not ready; to be mended first: {escape(missing)}.")


class Report(Record):
    """What `cuda-rl doctor --json` prints."""

    ready: bool
    trainers: bool
    """Whether what SFT and RL need is installed; without it `ready` speaks of the judge."""
    checks: tuple[CheckResult, ...]


def doctor(*, as_json: bool = False, checks: tuple[Check, ...] | None = None) -> int:
    """Checks everything, prints the table (or one JSON object) and returns the exit status:
    0 where what is installed works, 3 where not. Progress goes to stderr."""
    from rich.console import Console

    console = Console(stderr=True)

    def tell(result: CheckResult) -> None:
        console.print(
            f"doctor: {result.name}: {result.state.value} ({result.seconds:.1f} s)",
            markup=False,
            highlight=False,
        )

    results = run_checks(checks if checks is not None else checks_here(), tell)
    if as_json:
        report = Report(ready=is_ready(results), trainers=trainers_installed(), checks=results)
        print(report.model_dump_json(indent=2))
    else:
        show(results, Console())
    return EXIT_OK if is_ready(results) else EXIT_OURS

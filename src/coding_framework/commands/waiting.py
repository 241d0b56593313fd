"""A line on a terminal while one piece of work runs: what is done now, and since when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], object]]:
    """Shows on stderr what a command does, and removes it at the end; nothing where stderr is no
    terminal. It gives what is to be told each step."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        line = shown.add_task(what, total=None)
        yield lambda step: shown.update(line, description=f"{what}: {step}")

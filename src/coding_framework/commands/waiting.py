"""A line on a terminal while one piece of work runs: what is done now, and since when."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], object]]:
    """Shows on stderr what a command does, and removes it at the end; nothing where stderr is no
    terminal. It gives what is to be told each step."""
    if not sys.stderr.isatty():
        yield str
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task(what, total=None)
        yield lambda step: shown.update(line, description=f"{what}: {step}")

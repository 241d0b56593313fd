"""The naive kernels that candidates' times are put beside: a task's own, else a writer's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from coding_framework.types import Record, Task


class NaiveWriter(Record):
    """What writes the naive kernel of a task that gives none."""

    function: str
    """`module:function`, imported where it is judged: a task -> its kernel's source, or None. It
    keeps what it wrote, and may be called from any thread."""
    digest: str
    """Of all that its kernels depend on beside the task."""


class NaiveKernels:
    """Gives a judge the naive kernels of tasks."""

    def __init__(self, writer: NaiveWriter | None) -> None:
        self._writer = writer
        self._begun: threading.Thread | None = None

    def begin(self, task: Task, then: Callable[[str], object]) -> None:
        """Get a task's kernel, and hand it on, while this thread does something else."""
        self._begun = threading.Thread(target=self._hand_on, args=(task, then), daemon=True)
        self._begun.start()

    def _hand_on(self, task: Task, then: Callable[[str], object]) -> None:
        with suppress(Exception):  # it shows again in `of`
            kernel = self._written(task)
            if kernel is not None:
                then(kernel)

    def of(self, task: Task) -> str | None:
        """The task's kernel; None where it has none."""
        if self._begun is not None:
            self._begun.join()
        return self._written(task)

    def _written(self, task: Task) -> str | None:
        if task.naive_kernel is not None or self._writer is None:
            return task.naive_kernel
        module, _, name = self._writer.function.partition(":")
        found: str | None = getattr(import_module(module), name)(task)
        return found

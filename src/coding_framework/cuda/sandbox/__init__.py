"""Sandboxes: one Protocol (base.py), chosen by name.

`auto` takes the first that works, strongest first; the judge names it in every verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from coding_framework.cuda.sandbox.base import Exit, Job, Limits, Mount, Sandbox, stop, wait
from coding_framework.cuda.sandbox.bubblewrap import BubblewrapSandbox
from coding_framework.cuda.sandbox.native import NativeSandbox
from coding_framework.errors import MissingToolError, UsageError

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": BubblewrapSandbox,
    "native": NativeSandbox,
}
"""In the order in which `auto` tries them."""

__all__ = [
    "SANDBOXES",
    "Exit",
    "Job",
    "Limits",
    "Mount",
    "Sandbox",
    "choose_sandbox",
    "stop",
    "wait",
]


@lru_cache(maxsize=8)
def choose_sandbox(name: str = "auto") -> Sandbox:
    """The sandbox called `name`, or with "auto" the first that works.

    Raises UsageError for an unknown name, MissingToolError where the named one (or all) is missing.
    """
    if name != "auto":
        if name not in SANDBOXES:
            raise UsageError(
                f"unknown sandbox {name!r}: choose auto, {', '.join(sorted(SANDBOXES))}"
            )
        sandbox = SANDBOXES[name]()
        reason = sandbox.missing()
        if reason is not None:
            raise MissingToolError(f"the {name} sandbox was asked for, but {reason}")
        return sandbox
    reasons = []
    for make in SANDBOXES.values():
        sandbox = make()
        reason = sandbox.missing()
        if reason is None:
            return sandbox
        reasons.append(f"{sandbox.name}: {reason}")
    raise MissingToolError(f"no sandbox works here ({'; '.join(reasons)})")

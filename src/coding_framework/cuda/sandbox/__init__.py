"""Sandboxes: one Protocol (base.py), chosen by name.

`auto` takes the first that works, quickest first among the strong ones; the judge names it in every
verdict. `no-docker` is `auto` without Docker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from coding_framework.cuda.sandbox.base import Exit, Job, Limits, Mount, Running, Sandbox
from coding_framework.cuda.sandbox.bubblewrap import BubblewrapSandbox
from coding_framework.cuda.sandbox.docker import DockerSandbox
from coding_framework.cuda.sandbox.native import NativeSandbox
from coding_framework.errors import MissingChoiceError, MissingToolError, UsageError

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": BubblewrapSandbox,
    "docker": DockerSandbox,
    "native": NativeSandbox,
}
"""In the order in which `auto` tries them."""

__all__ = [
    "SANDBOXES",
    "Exit",
    "Job",
    "Limits",
    "Mount",
    "Running",
    "Sandbox",
    "choose_sandbox",
]


@lru_cache(maxsize=8)
def choose_sandbox(name: str = "auto") -> Sandbox:
    """The sandbox called `name`; with "auto" the first that works, with "no-docker" the first but
    Docker.

    Raises UsageError for an unknown name, MissingChoiceError where the named one is missing,
    MissingToolError where all are.
    """
    if name not in ("auto", "no-docker"):
        if name not in SANDBOXES:
            choices = ", ".join(("auto", "no-docker", *sorted(SANDBOXES)))
            raise UsageError(f"unknown sandbox {name!r}: choose one of {choices}")
        sandbox = SANDBOXES[name]()
        reason = sandbox.missing()
        if reason is not None:
            raise MissingChoiceError(
                f"the {name} sandbox was asked for, but {reason}; --sandbox auto takes one that "
                "works here"
            )
        return sandbox
    reasons = []
    for known, make in SANDBOXES.items():
        if (name, known) == ("no-docker", "docker"):
            continue
        sandbox = make()
        reason = sandbox.missing()
        if reason is None:
            return sandbox
        reasons.append(f"{known}: {reason}")
    raise MissingToolError(f"no sandbox works here ({'; '.join(reasons)})")

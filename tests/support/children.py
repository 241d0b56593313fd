"""Processes that a test started."""

from __future__ import annotations

from contextlib import suppress

import psutil


def children_named(name: str) -> list[psutil.Process]:
    """This process's own children whose command line has the name, but those that have ended: a
    process of another test may end while we look."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if name in " ".join(child.cmdline()):
                found.append(child)
    return found

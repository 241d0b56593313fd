"""Kernels' names as their authors wrote them."""

from __future__ import annotations

import re


def readable(name: str) -> str:
    """The plain name in a mangled C++ name; the name itself where it is not mangled."""
    match = re.match(r"_ZN?K?(\d+)(.*)", name)
    if match is None:
        return name
    rest, size, parts = match.group(2), int(match.group(1)), []
    while True:
        parts.append(rest[:size])
        more = re.match(r"(\d+)(.*)", rest[size:])
        if not name.startswith("_ZN") or more is None:
            return parts[-1] or name
        size, rest = int(more.group(1)), more.group(2)

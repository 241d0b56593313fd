"""Applies answers that change a kernel by a unified diff instead of repeating it.

A model's line numbers are seldom right, so hunks are placed by their context alone: the lines that
a hunk keeps or removes must occur in the kernel, blanks at line ends aside, exactly once, or at the
place after the hunk before. Anything else is no kernel, and the reason says which hunk.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_DIFF_LINES = 4000
MAX_HUNKS = 32


@dataclass(frozen=True, slots=True)
class Patched:
    """The kernel after a diff; `code` is None where it does not fit."""

    code: str | None
    note: str


def looks_like_diff(text: str) -> bool:
    """Whether the lines are those of a unified diff: a hunk's head, or file heads, or changes only
    among kept lines."""
    lines = [line for line in text.split("\n") if line.strip()]
    if any(line.startswith("@@") for line in lines):
        return True
    return bool(lines) and all(line[0] in "+- " for line in lines) and _changes(lines)


def apply_diff(previous: str, diff: str) -> Patched:
    """The kernel `previous` with the diff's hunks applied. Never raises; its time is bounded by
    MAX_HUNKS passes over the kernel."""
    lines = diff.replace("\r\n", "\n").split("\n")
    if len(lines) > MAX_DIFF_LINES:
        return Patched(None, f"a diff of {len(lines)} lines: {MAX_DIFF_LINES} are allowed")
    hunks = _hunks(lines)
    if len(hunks) > MAX_HUNKS:
        return Patched(None, f"a diff of {len(hunks)} hunks: {MAX_HUNKS} are allowed")
    if not hunks:
        return Patched(None, "a diff that changes nothing")
    source = previous.replace("\r\n", "\n").split("\n")
    position = 0
    for number, hunk in enumerate(hunks, start=1):
        old = [_text(line).rstrip() for line in hunk if line[:1] != "+"]
        at = _place(source, old, position)
        if isinstance(at, str):
            return Patched(None, f"a diff whose hunk {number} {at}")
        source[at : at + len(old)] = _replacement(hunk, source[at : at + len(old)])
        position = at + sum(line[:1] != "-" for line in hunk)
    plural = "" if len(hunks) == 1 else "s"
    return Patched("\n".join(source), f"a diff of {len(hunks)} hunk{plural}")


def _hunks(lines: list[str]) -> list[list[str]]:
    """The hunks' lines without heads; blank lines at a hunk's ends are left out."""
    hunks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("@@"):
            hunks.append([])
        elif not line.startswith(("--- ", "+++ ", "diff ", "index ", "\\ ")):
            hunks[-1].append(line)
    trimmed = [_trimmed(hunk) for hunk in hunks]
    return [hunk for hunk in trimmed if _changes(hunk)]


def _text(line: str) -> str:
    """A hunk's line without its mark. Models sometimes omit the leading blank of a kept line."""
    return line[1:] if line[:1] in ("+", "-", " ") else line


def _trimmed(hunk: list[str]) -> list[str]:
    start, end = 0, len(hunk)
    while start < end and not hunk[start].strip():
        start += 1
    while end > start and not hunk[end - 1].strip():
        end -= 1
    return hunk[start:end]


def _changes(lines: list[str]) -> bool:
    return any(line[:1] in ("+", "-") for line in lines)


def _place(source: list[str], old: list[str], position: int) -> int | str:
    """Index where the old lines are, or what is wrong with them."""
    if not old:
        return "keeps and removes no line, so that its place is unknown"
    stripped = [line.rstrip() for line in source]
    found = [i for i in range(len(stripped) - len(old) + 1) if stripped[i : i + len(old)] == old]
    later = [i for i in found if i >= position]
    if not found:
        return "does not fit the last kernel"
    if len(found) > 1 and len(later) != 1:
        return f"fits the last kernel in {len(found)} places: keep more lines around it"
    return later[0] if later else found[0]


def _replacement(hunk: list[str], kept: list[str]) -> list[str]:
    """The new lines; kept ones as the source has them."""
    new, at = [], 0
    for line in hunk:
        if line[:1] == "+":
            new.append(line[1:])
        else:
            if line[:1] != "-":
                new.append(kept[at])
            at += 1
    return new

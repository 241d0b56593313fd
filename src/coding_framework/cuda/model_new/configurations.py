"""The configurations of `triton.autotune` in an answer, tried one by one.

Host code has no clock here, so Triton's stand-in takes the first. The judge tries the others as
texts of their own, in which one configuration alone is left.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from coding_framework.types import source_bytes, source_text


@dataclass(frozen=True, slots=True)
class Tuned:
    """A kernel with `triton.autotune`, and where the text of its configurations is."""

    kernel: str
    """Its name; "line 7" where the call decorates no function."""
    start: int
    end: int
    """Of the expression, in bytes of the source."""


def tuned_kernels(answer: str) -> tuple[Tuned, ...]:
    """In the order of the text; none where the answer is no Python."""
    try:
        tree = ast.parse(answer)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names = {
        id(call): function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for call in function.decorator_list
    }
    starts = [0]
    for line in source_bytes(answer).splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (given := _configurations(call)) is not None:
            assert given.end_lineno is not None
            assert given.end_col_offset is not None
            start = starts[given.lineno - 1] + given.col_offset
            end = starts[given.end_lineno - 1] + given.end_col_offset
            found.append(Tuned(names.get(id(call), f"line {call.lineno}"), start, end))
    return tuple(sorted(found, key=lambda tuned: tuned.start))


def _configurations(call: ast.Call) -> ast.expr | None:
    """What a call of `autotune` is given as configurations."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name != "autotune":
        return None
    named = [keyword.value for keyword in call.keywords if keyword.arg == "configs"]
    given = named or [one for one in call.args[:1] if not isinstance(one, ast.Starred)]
    return given[0] if given else None


def with_choice(answer: str, choice: Mapping[Tuned, int]) -> str:
    """The answer with one configuration of each kernel that is in `choice`, by its place in the
    list. A place beyond the list's end is an IndexError when the answer is imported."""
    text = source_bytes(answer)
    for tuned, place in sorted(choice.items(), key=lambda item: item[0].start, reverse=True):
        given = text[tuned.start : tuned.end]
        chosen = b"([[*(%b)][%d]])" % (given, place)
        text = text[: tuned.start] + chosen + text[tuned.end :]
    return source_text(text)

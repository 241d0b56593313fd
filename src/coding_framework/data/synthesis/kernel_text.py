"""Filling templates of CUDA source."""

from __future__ import annotations

from string import Template

Lines = list[str]


def fill(template: str, **values: str | int | Lines) -> Lines:
    """A template's lines, `$name` filled in; a line that is only `$name` becomes the lines of that
    list, at its indentation, or nothing where the list is empty."""
    lines: Lines = []
    for line in template.strip("\n").splitlines():
        text = line.lstrip()
        found = values.get(text[1:]) if text.startswith("$") else None
        if isinstance(found, list):
            lines += [line[: len(line) - len(text)] + inner for inner in found]
        else:
            lines.append(Template(line).substitute(values))
    return lines


def signed(number: int) -> str:
    """What adds a number to an expression; nothing for 0."""
    return "" if number == 0 else f" + {number}" if number > 0 else f" - {-number}"

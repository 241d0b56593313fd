"""CUDA that is written by hand: files that an editor reads, with a few holes for what is different
in each module. A hole is a name after `$`; a line that is only one holds the lines of its filling.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

Lines = list[str]


@cache
def cuda_text(name: str) -> str:
    """The text of a file here, by its name."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


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

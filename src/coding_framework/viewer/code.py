"""Code as lines of coloured pieces: highlighting, differences, marks within a line.

Everything is done on text that `visible` has made harmless, and what leaves here is escaped.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from markupsafe import Markup, escape
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import STANDARD_TYPES

from coding_framework.monitoring.text import visible
from coding_framework.types import Candidate

MAX_CHARS = 200_000
"""Longer code is cut on the page; the whole of it can be downloaded."""
MAX_COLOURED = 60_000
"""Longer code is shown without colours: the time of a highlighter has no good bound."""
MAX_DIFF_LINES = 4_000
CONTEXT = 4
PLAIN = frozenset({"n", "p", "o", "w", "err", "nl"})
"""Tokens without a colour: names, operators, spaces."""
Kind = Literal["same", "added", "removed", "hunk", "empty"]
Piece = tuple[str, str]
"""(CSS class or "", text)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A line as the template shows it."""

    kind: Kind
    number: int | None
    html: Markup
    other: int | None = None
    """In a unified difference: the number on the new side."""
    notes: tuple[tuple[str, str], ...] = ()
    """(severity, message) that stand below it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of a difference side by side."""

    old: Shown
    new: Shown


def code_lines(
    code: str, notes: Mapping[int, Sequence[tuple[str, str]]] | None = None
) -> list[Shown]:
    """Code with its line numbers. notes: (severity, message) by line number."""
    told = notes or {}
    return [
        Shown("same", i, _html(pieces), notes=tuple(told.get(i, ())))
        for i, pieces in enumerate(_pieces(code), start=1)
    ]


def unified(before: str, after: str) -> list[Shown]:
    """The difference as one column; runs of equal lines are folded to their ends."""
    rows: list[Shown] = []
    added: list[Shown] = []
    """Of a run of changed lines: they come after the removed ones."""
    for pair in side_by_side(before, after):
        old, new = pair.old, pair.new
        if old.kind in ("hunk", "same"):
            rows += [*added, Shown(old.kind, old.number, old.html, new.number)]
            added = []
        if old.kind == "removed":
            rows.append(Shown("removed", old.number, old.html))
        if new.kind == "added":
            added.append(Shown("added", None, new.html, new.number))
    return rows + added


def side_by_side(before: str, after: str) -> list[Pair]:
    """The difference as two columns, with what changed within a line marked."""
    old, new = _pieces(before), _pieces(after)
    texts = [["".join(text for _, text in line) for line in side] for side in (old, new)]
    if max(len(old), len(new)) > MAX_DIFF_LINES:
        note = Shown("hunk", None, Markup("too long to compare: the code as it is now"))
        return [Pair(note, note), *(Pair(line, line) for line in code_lines(after))]
    matcher = difflib.SequenceMatcher(None, texts[0], texts[1], autojunk=len(old) > 500)
    rows: list[Pair] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        head = f"lines {first[1] + 1}–{last[2]} → {first[3] + 1}–{last[4]}"
        hunk = Shown("hunk", None, escape(head))
        rows.append(Pair(hunk, hunk))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [
                    Pair(Shown("same", i + 1, _html(old[i])), Shown("same", j + 1, _html(new[j])))
                    for i, j in zip(range(i1, i2), range(j1, j2), strict=True)
                ]
            else:
                rows += _changed(old, new, texts, (i1, i2), (j1, j2))
    return rows


def _changed(
    old: list[list[Piece]],
    new: list[list[Piece]],
    texts: list[list[str]],
    at_old: tuple[int, int],
    at_new: tuple[int, int],
) -> Iterator[Pair]:
    (i1, i2), (j1, j2) = at_old, at_new
    empty = Shown("empty", None, Markup(""))
    for k in range(max(i2 - i1, j2 - j1)):
        i, j = i1 + k, j1 + k
        marks = _marks(texts[0][i], texts[1][j]) if i < i2 and j < j2 else ([], [])
        yield Pair(
            Shown("removed", i + 1, _html(old[i], marks[0])) if i < i2 else empty,
            Shown("added", j + 1, _html(new[j], marks[1])) if j < j2 else empty,
        )


def _marks(before: str, after: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Ranges of characters that differ; none where the lines have little in common."""
    if max(len(before), len(after)) > 400:
        return [], []
    words = [re.findall(r"\w+|\s+|.", text) for text in (before, after)]
    matcher = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False)
    if matcher.ratio() < 0.4:
        return [], []
    ends = [[0], [0]]
    for side, found in zip(ends, words, strict=True):
        for word in found:
            side.append(side[-1] + len(word))
    changed = [op for op in matcher.get_opcodes() if op[0] != "equal"]
    return (
        [(ends[0][i1], ends[0][i2]) for _, i1, i2, _, _ in changed if i2 > i1],
        [(ends[1][j1], ends[1][j2]) for _, _, _, j1, j2 in changed if j2 > j1],
    )


@lru_cache(maxsize=32)
def _pieces(code: str) -> list[list[Piece]]:
    """The lines of code, each as coloured pieces."""
    text = visible(code[:MAX_CHARS])
    if len(text) > MAX_COLOURED:
        return [[("", line)] for line in text.split("\n")]
    python = Candidate.model_construct(code=code).is_python
    lexer = (PythonLexer if python else CudaLexer)(stripnl=False, ensurenl=False)
    lines: list[list[Piece]] = [[]]
    for token, value in lexer.get_tokens(text):
        css = STANDARD_TYPES.get(token) or STANDARD_TYPES.get(token.parent, "")
        css = "" if css in PLAIN else css
        for k, part in enumerate(value.split("\n")):
            if k:
                lines.append([])
            if part:
                lines[-1].append((css, part))
    return lines


def _html(pieces: Sequence[Piece], marks: Sequence[tuple[int, int]] = ()) -> Markup:
    out: list[Markup] = []
    position = 0
    for css, text in pieces:
        for part, marked in _split(text, position, marks):
            html = escape(part)
            if marked:
                html = Markup("<mark>{}</mark>").format(html)
            out.append(Markup('<i class="{}">{}</i>').format(css, html) if css else html)
        position += len(text)
    return Markup("").join(out)


def _split(text: str, start: int, marks: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """The text's parts that are in a mark and that are not."""
    end, position = start + len(text), start
    for low, high in marks:
        if high <= position or low >= end:
            continue
        if low > position:
            yield text[position - start : low - start], False
        yield text[max(low, position) - start : min(high, end) - start], True
        position = min(high, end)
    if position < end:
        yield text[position - start :], False

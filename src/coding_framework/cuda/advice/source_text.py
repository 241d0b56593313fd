"""CUDA source as findings look at it: without comments and literals, lines kept."""

from __future__ import annotations

import re
from bisect import bisect_right

from coding_framework.types import Finding, FindingSeverity

_TOKEN = re.compile(
    r"""
    (?P<line>//(?:\\\n|[^\n])*)                          # a // comment, with continued lines
  | (?P<block>/\*.*?(?:\*/|\Z))
  | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z))
  | (?P<string>"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\Z))
  | (?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*(?:'|(?=\n)|\Z))  # not a digit separator
    """,
    re.VERBOSE | re.DOTALL,
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|embed)\b[^\n]*", re.MULTILINE)


def code_only(source: str, *, literals: bool = False) -> str:
    """`source` with comments blanked and, unless `literals`, strings emptied; lines as before.

    `#include` lines stay whole: what they name is code. Linear in the length of the source.
    """
    included = [(m.start(), m.end()) for m in _INCLUDE.finditer(source)]
    starts = [start for start, _ in included]
    parts: list[str] = []
    end = 0
    for match in _TOKEN.finditer(source):
        start = match.start()
        if match["line"] is None and match["block"] is None:
            i = bisect_right(starts, start) - 1
            if literals or (i >= 0 and match.end() <= included[i][1]):
                continue
        parts.append(source[end:start])
        parts.append(_blank(match))
        end = match.end()
    parts.append(source[end:])
    return "".join(parts)


def line_of(source: str, position: int) -> int:
    """1-based line number of a position."""
    return source.count("\n", 0, position) + 1


def finding_at(
    source: str, position: int, rule: str, severity: FindingSeverity, message: str
) -> Finding:
    """What a pattern found there, at the first character that is no blank."""
    blanks = len(source) - position - len(source[position:].lstrip())
    line = line_of(source, position + blanks)
    return Finding(rule=rule, severity=severity, line=line, message=message, basis="source")


def _blank(match: re.Match[str]) -> str:
    lines = "\n" * match.group().count("\n")
    if match["string"] is not None or match["raw"] is not None:
        return '""' + lines
    return ("' '" if match["char"] is not None else " ") + lines

"""Text of candidates and models, made harmless to show."""

from __future__ import annotations

import re

_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)


def visible(text: str) -> str:
    """Text in which control, bidirectional and invisible characters are shown by code point.

    Newlines and tabs stay. What is left cannot move a terminal's cursor, change its colours or
    reorder a line.
    """
    return _ACTING.sub(lambda m: f"<U+{ord(m.group()):04X}>", text)


def one_line(text: str, limit: int = 300) -> str:
    """`visible` text on one line, cut to `limit` characters."""
    joined = " ".join(visible(text[: 4 * limit]).split())
    return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"

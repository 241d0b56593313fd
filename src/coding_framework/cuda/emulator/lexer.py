"""Tokens of PTX text, as nvcc 13 writes it and as inline assembly may."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coding_framework.cuda.emulator.program import Immediate, unsupported

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)
  | (?P<hexfloat>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b)
  | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
  | (?P<word>[A-Za-z_$%][\w$]*(?:(?:\.|::)\w+)*)
  | (?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<punctuation>[{}()\[\],;:@!<>=+\-*|~&^?/%])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """kind: hexfloat, float, int, word, directive, string, punctuation or end."""

    kind: str
    text: str
    position: int


def tokenize(text: str) -> list[Token]:
    """All tokens but white space and comments, closed by an `end` token.

    Raises CandidateFault(unsupported) at a character that no PTX token starts with.
    """
    tokens: list[Token] = []
    append = tokens.append
    position, size = 0, len(text)
    match = _TOKEN.match
    while position < size:
        found = match(text, position)
        if found is None:
            line = text.count("\n", 0, position) + 1
            raise unsupported(f"the character {text[position]!r} in line {line} of the PTX")
        kind = found.lastgroup
        if kind != "space":
            append(Token(kind or "", found.group(), position))
        position = found.end()
    append(Token("end", "", size))
    return tokens


def number(token: Token) -> Immediate:
    """The value of a numeric token."""
    text = token.text
    if token.kind == "hexfloat":
        return Immediate(int(text[2:], 16), "f32" if text[1] in "fF" else "f64")
    if token.kind == "float":
        import struct

        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), "f64")
    digits = text.rstrip("U")
    if digits[:1] == "0" and digits.isdigit() and len(digits) > 1:
        try:
            return Immediate(int(digits, 8))
        except ValueError:
            raise unsupported(f"the number {text!r}") from None
    if len(digits) > 80:
        raise unsupported("an integer literal of more than 80 characters")
    return Immediate(int(digits, 0))

"""The host code of a kernel file, with the names that the file declares made equal.

Together with the digest of the device code it tells a kernel that is only spelt anew, and so keeps
its verdict, from one that launches otherwise. It errs to one side: host code that differs in more
than names, comments and blanks counts as other code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\d[\w.]*|\w+|::|->|\S', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_TYPES = frozenset(
    ("auto", "bool", "dim3", "double", "float", "int", "int64_t", "long", "size_t", "Tensor",
     "unsigned", "void")
)  # fmt: skip
_NOT_OWN = _TYPES | {"char", "const", "forward", "short", "sizeof"}
"""`forward` is the name that the judge calls."""


def host_digest(code: str) -> str:
    """16 hexadecimal digits, equal for kernel files whose host code is the same."""
    tokens = [t for t in _TOKEN.findall(code) if not t.startswith(("//", "/*"))]
    host = _without_device_functions(tokens)
    names = dict.fromkeys((*_kernels(tokens), *_declared(host)))
    order = {name: f"n{number}" for number, name in enumerate(names)}
    told = (
        token if before in (".", "->", "::") else order.get(token, token)
        for before, token in zip(("", *host), host, strict=False)
    )
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:16]


def _without_device_functions(tokens: Sequence[str]) -> list[str]:
    """A function for both sides stays: the host may call it."""
    kept: list[str] = []
    at = 0
    while at < len(tokens):
        both = "__host__" in (kept[-1:] or [""])[0] or "__host__" in tokens[at + 1 : at + 2]
        if tokens[at] in ("__global__", "__device__", "__constant__") and not both:
            at = _end_of(tokens, at)
        else:
            kept.append(tokens[at])
            at += 1
    return kept


def _end_of(tokens: Sequence[str], start: int) -> int:
    """Behind the declaration at `start`: its closing brace, or its semicolon."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += {"{": 1, "}": -1}.get(tokens[at], 0)
        if depth == 0 and tokens[at] in ("}", ";"):
            return at + 1
    return len(tokens)


def _kernels(tokens: Sequence[str]) -> Iterator[str]:
    """Names of the `__global__` functions in the order in which they are defined, so that launches
    of two that changed places are not alike."""
    inside = False
    for token, after in zip(tokens, (*tokens[1:], ""), strict=True):
        inside = inside or token == "__global__"
        if inside and after == "(" and token != "__launch_bounds__":
            yield token
            inside = False


def _declared(tokens: Sequence[str]) -> Iterator[str]:
    """Variables, arguments and functions: a name behind a type, or one more in its declaration."""
    rows = zip(("", *tokens), tokens, tokens[1:], tokens[2:], strict=False)
    for kind, before, name, after in rows:
        typed = (kind if before in ("&", "*") else before) in _TYPES
        typed = typed and after in ("=", ",", ";", ")", "(", "[", "{")
        own = _NAME.fullmatch(name) and name not in _NOT_OWN
        if own and (typed or (before == "," and after == "=")):
            yield name

"""What a kernel's device code is and does, read from its PTX.

From instructions, never from the source: a comment or an unused function claims nothing here.
"""

from __future__ import annotations

import hashlib
import math
import re

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MANGLED = re.compile(r"\b_Z\w+")
"""C++ names: of functions, their parameters and their shared arrays; the author's choice."""
_LINE_INFO = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.MULTILINE)
_VARIABLE = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak|common)[ \t]+)?\.(?P<space>global|const)[ \t]"
    r"(?:[ \t]*\.(?:align[ \t]+\d+|attribute\([^)]*\)|\w+))*[ \t]*\.[a-z]+(?P<bits>\d*)\w*[ \t]+"
    r"(?P<name>[\w$%]+)(?P<extents>(?:\[\d+\])*)",
    re.MULTILINE,
)
"""A declaration at the top of a module; function bodies have none. Opaque types (texref) have no
bits."""

_FLOW = re.compile(r"^\s*([\w$]+):|\bbra(?:\.uni)?\s+([\w$]+)|\b(brx\.idx|call)\b", re.MULTILINE)
"""Labels, branches, and what goes to a place that is not written there."""

_TECHNIQUES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vectorised access", re.compile(r"\b(?:ld|st)\.(?:[\w:]+\.)*global(?:\.[\w:]+)*\.v[248]\b")),
    ("shared memory", re.compile(r"\b(?:ld|st|atom|red)\.(?:[\w:]+\.)*shared\b")),
    ("warp shuffle", re.compile(r"\bshfl\.")),
    ("warp reduction", re.compile(r"\b(?:redux|vote|match)\.")),
    ("tensor cores", re.compile(r"\b(?:mma|wmma|wgmma)\.")),
    ("asynchronous copy", re.compile(r"\bcp\.async\b")),
    ("global atomics", re.compile(r"\b(?:atom|red)\.(?:[\w:]+\.)*global\b")),
    ("read-only loads", re.compile(r"\bld\.global\.(?:[\w:]+\.)*nc\b")),
    ("packed halves", re.compile(r"\.(?:f16x2|bf16x2)\b")),
    ("launch bounds", re.compile(r"\.(?:maxntid|minnctapersm)\b")),
)


def ptx_digest(ptx: str) -> str:
    """SHA-256 of the code: comments, line information and blanks left out, C++ names replaced by
    their order. Equal digests: the same instructions; a renamed kernel is the same kernel."""
    text = _LINE_INFO.sub("", _COMMENT.sub("", ptx))
    order: dict[str, str] = {}
    text = _MANGLED.sub(lambda m: order.setdefault(m.group(), f"n{len(order)}"), text)
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def techniques(ptx: str) -> tuple[str, ...]:
    """Names of the techniques whose instructions are there; "several kernels" by their count."""
    text = _COMMENT.sub("", ptx)
    found = [name for name, pattern in _TECHNIQUES if pattern.search(text)]
    if len(_ENTRY.findall(text)) > 1:
        found.append("several kernels")
    return tuple(found)


def may_repeat(ptx: str) -> bool:
    """Whether any instruction can be executed twice by a thread: a branch backwards, a branch by
    value, or a call by value or of what calls. Without one no kernel is endless."""
    placed: set[str] = set()
    for label, target, other in _FLOW.findall(_COMMENT.sub("", ptx)):
        if label:
            placed.add(label)
        elif other or target in placed:
            return True
    return False


def first_kernel(ptx: str) -> str | None:
    """The mangled name of the first `__global__` function."""
    match = _ENTRY.search(ptx)
    return match.group(1) if match else None


def module_variables(ptx: str) -> tuple[tuple[str, str], ...]:
    """("global" or "const", name) of each variable that a module defines."""
    return tuple((v["space"], v["name"]) for v in _VARIABLE.finditer(_COMMENT.sub("", ptx)))


def variables_bytes(ptx: str) -> int:
    """Size in bytes of all variables that a module defines, without their alignment."""
    total = 0
    for declared in _VARIABLE.finditer(_COMMENT.sub("", ptx)):
        elements = math.prod(int(n) for n in re.findall(r"\d+", declared["extents"]))
        total += elements * int(declared["bits"] or 0) // 8
    return total

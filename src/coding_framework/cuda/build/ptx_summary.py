"""What a kernel's device code is and does, read from its PTX.

From instructions, never from the source: a comment or an unused function claims nothing here.
"""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Or a string, such as the path of a `#line`, which may look like one."""
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

_LOOKS_AGAIN = re.compile(r"\batom\.|\bld\.(?:volatile|acquire|relaxed|mmio|(?:global\.)?c[gv])\b")
"""An atomic, a strong read, or one that passes by the cache of the multiprocessor."""
_FLOW = re.compile(r"^\s*([\w$]+):|\bbra(?:\.uni)?\s+([\w$]+)|\b(brx\.idx|call)\b", re.MULTILINE)
"""Labels, branches, and what goes to a place that is not written there."""

_KERNEL = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d+)\s+(?P<name>[\w$]+)"
    r"(?:\[(?P<extent>\d+)\])?"
)
_LOAD = (
    r"ld\.param(?:\.v(?P<count>[248]))?\.[a-z]+(?P<bits>\d+)\s+[^;\[]*"
    r"\[{name}(?:\+(?P<offset>\d+))?\]"
)

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


def ptx_of(build: Path) -> str:
    """The PTX of a build, byte for byte: to ptxas a carriage return ends no line. Raises
    OSError."""
    return (build / "device.ptx").read_bytes().decode("utf-8", "replace")


def _without_comments(ptx: str) -> str:
    return _COMMENT.sub(lambda found: found[1] or "", ptx)


def ptx_digest(ptx: str) -> str:
    """SHA-256 of the code: comments, line information and blanks left out, C++ names replaced by
    their order. Equal digests: the same instructions; a renamed kernel is the same kernel, but a
    renamed function that is inlined another one: debug sections spell its name in bytes."""
    text = _LINE_INFO.sub("", _without_comments(ptx))
    order: dict[str, str] = {}
    text = _MANGLED.sub(lambda m: order.setdefault(m.group(), f"n{len(order)}"), text)
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def techniques(ptx: str) -> tuple[str, ...]:
    """Names of the techniques whose instructions are there; "several kernels" by their count."""
    text = _without_comments(ptx)
    found = [name for name, pattern in _TECHNIQUES if pattern.search(text)]
    if len(_ENTRY.findall(text)) > 1:
        found.append("several kernels")
    return tuple(found)


def may_repeat(ptx: str) -> bool:
    """Whether any instruction can be executed twice by a thread: a branch backwards, a branch by
    value, or a call by value or of what calls. Without one no kernel is endless."""
    placed: set[str] = set()
    for label, target, other in _FLOW.findall(_without_comments(ptx)):
        if label:
            placed.add(label)
        elif other or target in placed:
            return True
    return False


def may_poll(ptx: str) -> bool:
    """Whether a loop may look at global memory until another block has changed it."""
    return _LOOKS_AGAIN.search(ptx) is not None and may_repeat(ptx)


def first_kernel(ptx: str) -> str | None:
    """The mangled name of the first `__global__` function."""
    match = _ENTRY.search(ptx)
    return match.group(1) if match else None


def unread_parameters(ptx: str) -> dict[str, dict[int, frozenset[int]]]:
    """By kernel and number of a parameter: its bytes that no instruction loads. An object without
    members is passed as one byte of whatever lay there, and padding as it was."""
    found: dict[str, dict[int, frozenset[int]]] = {}
    for entry in _KERNEL.finditer(_without_comments(ptx)):
        body = _body(entry.string, entry.end())
        for number, declared in enumerate(_PARAMETER.finditer(entry["parameters"])):
            size = int(declared["bits"]) // 8 * int(declared["extent"] or 1)
            unread = set(range(size)) - _loaded(body, declared["name"])
            if unread:
                found.setdefault(entry["name"], {})[number] = frozenset(unread)
    return found


def kernel_body(ptx: str, name: str) -> str | None:
    """What a kernel executes; None where there is none of that name."""
    found = next((e for e in _KERNEL.finditer(_without_comments(ptx)) if e["name"] == name), None)
    return None if found is None else _body(found.string, found.end())


def _body(ptx: str, start: int) -> str:
    """From `start` to the next kernel or function."""
    end = re.compile(r"\.entry\b|\.func\b").search(ptx, start)
    return ptx[start : end.start() if end else len(ptx)]


def _loaded(body: str, parameter: str) -> set[int]:
    """Bytes of a parameter that are loaded by name; all, where its address is taken."""
    name = re.escape(parameter)
    loaded: set[int] = set()
    rest = body
    for load in re.finditer(_LOAD.format(name=name), body):
        count = int(load["count"] or 1)
        first = int(load["offset"] or 0)
        loaded.update(range(first, first + count * int(load["bits"]) // 8))
        rest = rest.replace(load.group(), "", 1)
    if re.search(rf"(?<![\w$]){name}(?![\w$])", rest):
        return set(range(1 << 13))
    return loaded


def module_variables(ptx: str) -> tuple[tuple[str, str], ...]:
    """("global" or "const", name) of each variable that a module defines."""
    return tuple((v["space"], v["name"]) for v in _VARIABLE.finditer(_without_comments(ptx)))


def variables_bytes(ptx: str) -> int:
    """Size in bytes of all variables that a module defines, without their alignment."""
    total = 0
    for declared in _VARIABLE.finditer(_without_comments(ptx)):
        elements = math.prod(int(n) for n in re.findall(r"\d+", declared["extents"]))
        total += elements * int(declared["bits"] or 0) // 8
    return total

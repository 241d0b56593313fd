"""Typical faults, put into a correct kernel: the broken half of a repair pair.

Each is a small edit of the source as `kernels` writes it, and what was wrong in one line. Not
guaranteed: that the edit shows (a missing barrier may be harmless on one schedule); the judge
decides, and a pair is used only where its verdict on the broken kernel is not `correct`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to break a kernel. `edit` returns None where the source has nothing to break."""

    name: str
    why_fixed: str
    """What the repair says in one line."""
    edit: Callable[[str, random.Random], str | None]


@dataclass(frozen=True, slots=True)
class BrokenKernel:
    """A kernel after one fault."""

    fault: str
    code: str
    why_fixed: str


def break_kernel(code: str, seed: int, *, fault: str | None = None) -> BrokenKernel | None:
    """`code` with one fault, drawn by seed among those that apply, or the one of that name."""
    chosen = [f for f in FAULTS if fault is None or f.name == fault]
    return next(iter(_broken(code, seed, chosen, 1)), None)


def break_in_many_ways(code: str, seed: int, count: int) -> list[BrokenKernel]:
    """Up to `count` kernels with one fault each, no two of the same kind or text, drawn by seed
    among all that apply."""
    return _broken(code, seed, list(FAULTS), count)


def _broken(code: str, seed: int, faults: list[Fault], count: int) -> list[BrokenKernel]:
    rng = random.Random(seed)
    rng.shuffle(faults)
    found: dict[str, BrokenKernel] = {}
    for fault in faults:
        broken = fault.edit(code, rng)
        if broken is not None and broken != code:
            found.setdefault(broken, BrokenKernel(fault.name, broken, fault.why_fixed))
        if len(found) == count:
            break
    return list(found.values())


def _replace(old: str, new: str) -> Callable[[str, random.Random], str | None]:
    def edit(code: str, rng: random.Random) -> str | None:
        return code.replace(old, new, 1) if old in code else None

    return edit


def _substitute(pattern: str, new: str) -> Callable[[str, random.Random], str | None]:
    compiled = re.compile(pattern)

    def edit(code: str, rng: random.Random) -> str | None:
        places = list(compiled.finditer(code))
        if not places:
            return None
        place = rng.choice(places)
        return code[: place.start()] + place.expand(new) + code[place.end() :]

    return edit


_GUARD = r"if \((\w+) >= ([\w* ]+)\) return;"
_STATEMENT = r"(\n +(?:const \w+ )?\w+(?:\[[^\n\]]*\])? = [^\n;]+);(?=\n)"


def _left_out(code: str, rng: random.Random) -> str | None:
    """One value is taken for the one that is computed from it."""
    values = re.findall(r"\n +(?:const )?float (\w+) = ", code)
    places = []
    for found in re.finditer(r"(?<=\n)( +const float \w+ = )([^\n;]+);", code):
        words = [w for w in re.findall(r"[A-Za-z_]\w*(?![\w(\[])", found[2]) if w in values]
        if words and words[0] != found[2]:
            places.append((found, words[0]))
    if not places:
        return _of_itself(code, rng)
    found, word = rng.choice(places)
    return f"{code[: found.start()]}{found[1]}{word};{code[found.end() :]}"


_of_itself = _substitute(r"\n( +)(\w+) = [^\n;]*\b\2\b[^\n;]*;(?=\n)", "")
"""A statement `v = expression of v;` on its own line goes."""

FAULTS: tuple[Fault, ...] = (
    Fault(
        "missing_semicolon",
        "A statement had no semicolon, so the kernel did not compile.",
        _substitute(_STATEMENT, r"\1"),
    ),
    Fault(
        "missing_include",
        "The include of torch/extension.h was missing, so nothing of torch was declared.",
        _replace("#include <torch/extension.h>\n\n", ""),
    ),
    Fault(
        "misspelt_name",
        "A built-in variable was misspelt: it is blockDim.",
        _replace("blockDim.x", "blockdim.x"),
    ),
    Fault(
        "wrong_dtype",
        "The tensors hold float, but a pointer to double was passed.",
        _substitute(r"data_ptr<float>\(\)", "data_ptr<double>()"),
    ),
    Fault(
        "missing_argument",
        "The launch passed one argument too few.",
        _substitute(r"(<<<.*), \w+\);", r"\1);"),
    ),
    Fault(
        "missing_bounds_check",
        "Threads beyond the last element read and wrote out of bounds: the check was missing.",
        _substitute(r"\n *" + _GUARD, ""),
    ),
    Fault(
        "off_by_one_short",
        "The bound was one too small, so the last element was never written.",
        _substitute(_GUARD, r"if (\1 >= \2 - 1) return;"),
    ),
    Fault(
        "off_by_one_long",
        "The bound let one thread too many pass: >= is right, > is not.",
        _substitute(_GUARD, r"if (\1 > \2) return;"),
    ),
    Fault(
        "wrong_index",
        "The index left out the block size, so blocks overlapped and most elements were missed.",
        _replace("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x + threadIdx.x"),
    ),
    Fault(
        "short_loop",
        "The loop stopped one column early.",
        _substitute(r"for \((int (\w+) = [^;]+); \2 < (\w+);", r"for (\1; \2 < \3 - 1;"),
    ),
    Fault(
        "grid_rounded_down",
        "The grid was rounded down, so the last partial block was never launched.",
        _substitute(r"\((\w+) \+ \d+\) / (\d+)", r"\1 / \2"),
    ),
    Fault("missing_step", "One operation of the module was missing.", _left_out),
    Fault(
        "wrong_broadcast",
        "The broadcast input was indexed by the wrong dimension.",
        _substitute(r"const int i1 = i % (\w+);", r"const int i1 = i / \1;"),
    ),
    Fault(
        "race",
        "A barrier was missing, so threads read shared memory before it was written.",
        _replace("  __syncthreads();\n", ""),
    ),
    Fault(
        "no_padding",
        "Places before the first element were read: the lower bound was not checked.",
        _substitute(r"\b(\w+) >= 0 && ", ""),
    ),
    Fault(
        "padding_too_far",
        "The place after the last element was read: < is right, <= is not.",
        _substitute(r"(>= 0 && \w+) < (\w+)\b", r"\1 <= \2"),
    ),
    Fault(
        "wrong_start",
        "The sum started at 1 instead of 0.",
        _substitute(r"(\n +float \w+) = 0\.0f;", r"\1 = 1.0f;"),
    ),
    Fault(
        "zero_maximum",
        "The maximum started at 0, which is wrong where all values are negative.",
        _replace("= -INFINITY", "= 0.0f"),
    ),
    Fault(
        "wrong_tile_column",
        "The tile was read by the wrong thread index, so blocks mixed rows and columns.",
        _replace("t[k][x]", "t[x][k]"),
    ),
    Fault(
        "wrong_row_stride",
        "Rows were addressed with the wrong stride.",
        _substitute(r"\[(\w+) \* (\w+) \+ (\w+)\]", r"[\1 * (\2 + 1) + \3]"),
    ),
    Fault(
        "half_warp",
        "The shuffle reduction started at 8, so it joined half a warp only.",
        _replace("int d = 16; d > 0", "int d = 8; d > 0"),
    ),
    Fault(
        "wrong_output_index",
        "The output was written one place too far.",
        _substitute(r"\b(o|out|output|dst)\[([^\]]+)\] = ", r"\1[\2 + 1] = "),
    ),
    Fault(
        "integer_type",
        "The accumulator was an int, which cut off every fraction.",
        _substitute(r"\n( +)float (\w+) = 0\.0f;", r"\n\1int \2 = 0;"),
    ),
)

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
    """`code` with one fault, drawn by seed among those of `FAULTS` that apply, or the one of that
    name."""
    rng = random.Random(seed)
    candidates = [f for f in FAULTS if fault is None or f.name == fault]
    rng.shuffle(candidates)
    for candidate in candidates:
        broken = candidate.edit(code, rng)
        if broken is not None and broken != code:
            return BrokenKernel(candidate.name, broken, candidate.why_fixed)
    return None


def break_in_many_ways(code: str, seed: int, count: int) -> list[BrokenKernel]:
    """Up to `count` kernels with one fault each, no two of the same kind or text, drawn by seed
    among all that apply, those of workloads included."""
    rng = random.Random(seed)
    candidates = [*FAULTS, *WORKLOAD_FAULTS]
    rng.shuffle(candidates)
    found: dict[str, BrokenKernel] = {}
    for candidate in candidates:
        broken = candidate.edit(code, rng)
        if broken is not None and broken != code:
            found.setdefault(broken, BrokenKernel(candidate.name, broken, candidate.why_fixed))
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


_STEP = r"\n( +)(\w+) = [^\n;]*\b\2\b[^\n;]*;(?=\n)"
"""A statement `v = expression of v;` on its own line."""

FAULTS: tuple[Fault, ...] = (
    Fault(
        "missing_semicolon",
        "A statement had no semicolon, so the kernel did not compile.",
        _substitute(r"(\n +\w+ = [^\n;]+);(?=\n)", r"\1"),
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
        _substitute(r"if \((\w+) < (n|m|m \* w)\) \{", "{"),
    ),
    Fault(
        "off_by_one_short",
        "The bound was one too small, so the last element was never written.",
        _substitute(r"if \((\w+) < (n|m|m \* w)\) \{", r"if (\1 < \2 - 1) {"),
    ),
    Fault(
        "off_by_one_long",
        "The bound was one too large, so one thread went past the end.",
        _substitute(r"if \((\w+) < (n|m)\) \{", r"if (\1 <= \2) {"),
    ),
    Fault(
        "wrong_index",
        "The index left out the block size, so blocks overlapped and most elements were missed.",
        _replace("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x + threadIdx.x"),
    ),
    Fault(
        "short_loop",
        "The loop stopped one column early.",
        _substitute(r"for \((int j = \w+); j < w;", r"for (\1; j < w - 1;"),
    ),
    Fault(
        "grid_rounded_down",
        "The grid was rounded down, so the last partial block was never launched.",
        _substitute(r"\((n|m) \+ \d+\) / (\d+)", r"\1 / \2"),
    ),
    Fault("missing_step", "One operation of the module was missing.", _substitute(_STEP, "")),
    Fault(
        "wrong_broadcast",
        "The broadcast input was indexed by the wrong dimension.",
        _substitute(r"\[(\w+) % w\](?!.*\* m)", r"[\1 / w]"),
    ),
    Fault(
        "race",
        "A barrier was missing, so threads read shared memory before it was written.",
        _replace("  __syncthreads();\n", ""),
    ),
)

_GUARD = r"if \((\w+) >= ([\w* ]+)\) return;"

WORKLOAD_FAULTS: tuple[Fault, ...] = (
    Fault(
        "missing_return",
        "Threads beyond the last element read and wrote out of bounds: the check was missing.",
        _substitute(r"\n *" + _GUARD, ""),
    ),
    Fault(
        "late_return",
        "The bound let one thread too many pass: >= is right, > is not.",
        _substitute(_GUARD, r"if (\1 > \2) return;"),
    ),
    Fault(
        "no_padding",
        "Places before the first element were read: the lower bound was not checked.",
        _substitute(r"\b(j|l|y) >= 0 && ", ""),
    ),
    Fault(
        "padding_too_far",
        "The place after the last element was read: < is right, <= is not.",
        _substitute(r"\b(j|l|y) < (w|h)\b", r"\1 <= \2"),
    ),
    Fault(
        "wrong_start",
        "The sum started at 1 instead of 0.",
        _substitute(r"float (a|e) = 0\.0f", r"float \1 = 1.0f"),
    ),
    Fault(
        "zero_maximum",
        "The maximum started at 0, which is wrong where all values are negative.",
        _replace("= -INFINITY", "= 0.0f"),
    ),
    Fault(
        "wrong_tile_column",
        "The tile was read by the wrong thread index, so blocks mixed rows and columns.",
        _replace("t[j][tx]", "t[tx][j]"),
    ),
    Fault(
        "wrong_row_stride",
        "Rows were addressed with the wrong stride.",
        _substitute(r"\[(\w+) \* w \+ (\w+)\]", r"[\1 * m + \2]"),
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
        _substitute(r"float (a|e) = 0\.0f;", r"int \1 = 0;"),
    ),
)
"""Further faults, for kernels of all kinds. Apart from `FAULTS`, whose order decides which repairs
the starter examples hold."""

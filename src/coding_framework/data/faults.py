"""Faults, put into a correct kernel: the broken half of a repair pair.

Each is a small edit of the source as the compiler writes it, and what was wrong in one line.
`ARGUMENT_FAULTS` are what a model that has learnt functions gets wrong of modules: a padding that
is left out, a dilation of 1, the channels of the first group, two parameters in the other order.
Not guaranteed: that the edit shows (a missing barrier may be harmless on one schedule); the judge
decides, and a pair is used only where its verdict on the broken kernel is not `correct`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Edit = Callable[[str, random.Random], str | None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to break a kernel. `edit` returns None where the source has nothing to break."""

    name: str
    why_fixed: str
    """What the repair says in one line."""
    edit: Edit


@dataclass(frozen=True, slots=True)
class BrokenKernel:
    """A kernel after one fault."""

    fault: str
    code: str
    why_fixed: str


def broken_kernels(
    code: str, seed: int, count: int = 1, among: Sequence[Fault] | None = None
) -> list[BrokenKernel]:
    """Up to `count` kernels with one fault each, no two of the same kind or text, drawn by seed
    among all that apply. among: by default `FAULTS`."""
    faults, rng = list(FAULTS if among is None else among), random.Random(seed)
    rng.shuffle(faults)
    found: dict[str, BrokenKernel] = {}
    for fault in faults:
        broken = fault.edit(code, rng)
        if broken is not None and broken != code:
            found.setdefault(broken, BrokenKernel(fault.name, broken, fault.why_fixed))
        if len(found) == count:
            break
    return list(found.values())


def _replace(old: str, new: str) -> Edit:
    def edit(code: str, rng: random.Random) -> str | None:
        return code.replace(old, new, 1) if old in code else None

    return edit


def _substitute(pattern: str, new: str) -> Edit:
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


# --- of arguments ---------------------------------------------------------------------------------


def _everywhere(pattern: str, new: str) -> Edit:
    def edit(code: str, rng: random.Random) -> str | None:
        return re.sub(pattern, new, code)

    return edit


_PARAMETERS = re.compile(r"torch::Tensor forward\((?P<all>[^)]*)\)")


def _swap_parameters(code: str, rng: random.Random) -> str | None:
    """Two neighbouring parameters of `forward` change places; the inputs stay."""
    found = _PARAMETERS.search(code)
    if found is None:
        return None
    parts = found["all"].split(", ")
    places = [
        i
        for i in range(1, len(parts) - 1)
        if all("_weight" in p or "_bias" in p or " weight" in p or " bias" in p
               for p in parts[i : i + 2])
    ]  # fmt: skip
    if not places:
        return None
    i = rng.choice(places)
    parts[i], parts[i + 1] = parts[i + 1], parts[i]
    return code[: found.start("all")] + ", ".join(parts) + code[found.end("all") :]


_PLACE = r"(int \w+ = i\d[^;\n]*?)"
"""Where an element of a window lies, as the receipts have it (`int p0 = i2 * 2 + r0 * 3 - 1`) and
as it is written now (`int y = i2 * 2 + p * 3 - 1`; without padding in the index itself)."""
ARGUMENT_FAULTS: tuple[Fault, ...] = (
    Fault(
        "padding_left_out",
        "The padding was left out: the window begins that many elements before its place.",
        _everywhere(_PLACE + r" - \d+;", r"\1;"),
    ),
    Fault(
        "stride_of_1",
        "The stride was left out: the window of place i begins at i times the stride.",
        _everywhere(r"\b(i\d) \* \d+ (?=\+ (?:r\d|[pqr])\b)", r"\1 "),
    ),
    Fault(
        "dilation_of_1",
        "The dilation was left out: the elements of the window lie that far apart.",
        _everywhere(_PLACE + r"(r\d) \* \d+|(?<=\+ )([pqr]) \* \d+\b", r"\1\2\3"),
    ),
    Fault(
        "first_group",
        "The input channels of the first group were read for all groups.",
        _everywhere(r"\(i1 / mg \* cg \+ (e)\)|\bfirst \+ (c)\b", r"\1\2"),
    ),
    Fault(
        "parameter_order",
        "Two parameters were taken in the other order: it is that of the module's definition.",
        _swap_parameters,
    ),
    Fault(
        "constant_of_the_default",
        "The default of eps was taken instead of the argument that the module gives.",
        _everywhere(r"(rsqrtf\([^;\n]* \+ )(?!1e-05f)[\d.e-]+f\)", r"\g<1>1e-05f)"),
    ),
    Fault(
        "negative_sign_lost",
        "The sign of a negative constant was lost.",
        _everywhere(r"\(-(\d[\d.e-]*f)\)", r"\1"),
    ),
)

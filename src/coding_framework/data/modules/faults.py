"""Faults of arguments, put into a module's naive kernel: the broken half of a repair pair.

What a model that has learnt functions gets wrong of modules are their arguments: a padding that is
left out, a dilation of 1, the channels of the first group, two parameters in the other order. Each
is an edit of a naive kernel as the receipts have it. Not guaranteed: that the edit shows;
the judge decides, and a pair is used only where its verdict is not `correct`.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable

from coding_framework.data.synthesis.faults import BrokenKernel, Fault

Edit = Callable[[str, random.Random], str | None]


def break_module(code: str, name: str) -> BrokenKernel | None:
    """The naive kernel of the task of that name with one fault, of those that apply, drawn by the
    name; None where none does."""
    rng = random.Random(zlib.crc32(name.encode()))
    for fault in rng.sample(ARGUMENT_FAULTS, len(ARGUMENT_FAULTS)):
        broken = fault.edit(code, rng)
        if broken is not None and broken != code:
            return BrokenKernel(fault.name, broken, fault.why_fixed)
    return None


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


_PLACE = r"(int p\d = [^;\n]*?)"
ARGUMENT_FAULTS: tuple[Fault, ...] = (
    Fault(
        "padding_left_out",
        "The padding was left out: the window begins that many elements before its place.",
        _everywhere(_PLACE + r" - \d+;", r"\1;"),
    ),
    Fault(
        "stride_of_1",
        "The stride was left out: the window of place i begins at i times the stride.",
        _everywhere(r"(int p\d = i\d) \* \d+ \+", r"\1 +"),
    ),
    Fault(
        "dilation_of_1",
        "The dilation was left out: the elements of the window lie that far apart.",
        _everywhere(_PLACE + r"(r\d) \* \d+", r"\1\2"),
    ),
    Fault(
        "first_group",
        "The input channels of the first group were read for all groups.",
        _everywhere(r"\(i1 / mg \* cg \+ e\)", "e"),
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

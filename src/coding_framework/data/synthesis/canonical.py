"""The canonical key of a function: equal functions get equal keys, so a split by key cannot leak.

Each op is spelled in atoms (tanh is scale, exp, shift, recip, scale, shift), constants are dropped,
and rewriting rules that hold for some choice of constants run to a fixed point. The key errs to one
side only: it may put different functions together (relu(x + 1) and relu(x) + 1), which costs
variety, and is meant never to separate equal ones; `tests` compare values across the split too.
"""

from __future__ import annotations

import itertools

from coding_framework.data.synthesis.function import Function

_HOMOGENEOUS = frozenset(
    {"abs", "square", "cube", "sqrt", "recip", "leakyrelu", "sum", "cumsum", "transpose",
     "softshrink", "center", "colsum", "allsum", "matmul", "bmm", "bmmnt", "matmultn", "conv1d",
     "conv2d", "convresidual", "depthwise", "depthresidual", "maxpool1d", "maxpool2d", "avgpool1d",
     "avgpool2d", "normpool2d", "midsum", "midmean", "midmax", "midmin", "midnorm", "gatherrows",
     "gatherscale", "channelscale", "rotary", "rotarypairs", "matvecmax", "sgdstep"}
)  # fmt: skip
"""f(c x) = c^k f(x), or so after changing f's own constant: scale moves to the front."""
_SHIFT_PASSES = frozenset({"sum", "transpose", "colsum", "allsum"})
_MONOTONE = frozenset(
    {"exp", "log", "scale", "shift", "clip", "sqrt", "recip", "cube", "leakyrelu", "elu",
     "softsign", "softshrink"}
)  # fmt: skip
"""max(f(x)) = f(max(x)), or with min for falling f (`ext` stands for both): ext moves to the end,
and cummax with it. Likewise clamp(f(x)) = f(clamp(x)), other limits: clip moves to the front."""
_SELECTING = ("ext", "colext", "cummax", "maxpool1d", "maxpool2d", "midmax", "midmin")
"""Results are some of the values."""
_MOVING = ("transpose", "gatherrows")
"""Results are the values elsewhere: every step on elements commutes."""
_SCALE_FREE = ("instancenorm", "groupnorm", "grouprms", "cosine", "rmsnormbackward")
_SHIFT_FREE = (
    "instancenorm", "groupnorm", "crossentropy", "label_softmax", "softmaxbackward",
    "logsoftmaxbackward", "logsumexpbackward", "layernormbackward", "varbackward",
)  # fmt: skip
_POWERS = ("square", "cube", "sqrt", "recip")

_PAIRS: dict[tuple[str, str], tuple[str, ...]] = {
    ("exp", "log"): (),
    ("log", "exp"): (),
    ("exp", "square"): ("scale", "exp"),
    ("exp", "cube"): ("scale", "exp"),
    ("exp", "sqrt"): ("scale", "exp"),
    ("exp", "recip"): ("scale", "exp"),
    ("square", "log"): ("log", "scale"),
    ("cube", "log"): ("log", "scale"),
    ("sqrt", "log"): ("log", "scale"),
    ("recip", "log"): ("log", "scale"),
    ("shift", "exp"): ("exp", "scale"),
    ("scale", "log"): ("log", "shift"),
    ("square", "sqrt"): ("abs",),
    ("sqrt", "square"): (),
    ("recip", "recip"): (),
    ("abs", "square"): ("square",),
    ("abs", "abs"): ("abs",),
    ("clip", "clip"): ("clip",),
    ("scale", "scale"): ("scale",),
    ("shift", "shift"): ("shift",),
    ("shift", "scale"): ("scale", "shift"),
    ("ext", "ext"): ("ext",),
    ("shift", "softmax"): ("softmax",),
    ("shift", "center"): ("center",),
    ("scale", "unit"): ("unit",),
    **{("scale", name): (name,) for name in _SCALE_FREE},
    **{("shift", name): (name,) for name in _SHIFT_FREE},
}
"""Neighbours (first, then second) and what they are equal to, for some constants."""


def canonical_key(function: Function) -> tuple[str, ...]:
    """The key of the split: a short list of atoms, e.g. ("scale", "add_full", "clip")."""
    atoms = [a for s in function.before for a in _atoms(s.op.atoms or (s.op.name,), s.operand)]
    atoms += function.core_atoms
    atoms += [a for s in function.after for a in _atoms(s.op.atoms or (s.op.name,), s.operand)]
    seen = set()
    while tuple(atoms) not in seen:
        seen.add(tuple(atoms))
        atoms = _rewrite_once(atoms)
    return tuple(atoms)


def _atoms(names: tuple[str, ...], operand: str | None) -> tuple[str, ...]:
    return tuple(f"{n}_{operand}" for n in names) if operand is not None else names


def _rewrite_once(atoms: list[str]) -> list[str]:
    """Apply the first rule that matches, from the left; the same list where none does."""
    for i, (first, second) in enumerate(itertools.pairwise(atoms)):
        swapped = _replacement(first, second)
        if swapped is not None:
            return atoms[:i] + list(swapped) + atoms[i + 2 :]
    return atoms


def _replacement(first: str, second: str) -> tuple[str, ...] | None:
    if (first, second) in _PAIRS:
        return _PAIRS[first, second]
    if second == "scale" and (first in _HOMOGENEOUS or first.startswith(("mul_", "div_"))):
        return second, first
    if second == "shift" and (first in _SHIFT_PASSES or first.startswith("add_")):
        return second, first
    if first in _MOVING and second not in _MOVING:
        return second, first
    if first in _SELECTING and second in _MONOTONE:
        return second, first
    if second == "clip" and first in _MONOTONE - {"clip"}:
        return second, first
    if first == "recip" and second in _POWERS and second != "recip":
        return second, first
    return _commuted_operands(first, second)


def _commuted_operands(first: str, second: str) -> tuple[str, ...] | None:
    """Additions commute with additions, products and quotients with each other: sort them."""
    groups = (("add_",), ("mul_", "div_"), ("max_",))
    for group in groups:
        if first.startswith(group) and second.startswith(group) and first > second:
            return second, first
    return None

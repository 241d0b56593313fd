"""Level 2: a product or a convolution and two to six operations after it, drawn from a grammar.

The grammar keeps what the operations after it may assume: where the channels lie, how many spatial
axes are left, and whether an axis has been reduced to one place. What comes out is never the same
everywhere: nothing is normalised over an axis of one place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from coding_framework.data.modules.operations import ELEMENTWISE
from coding_framework.data.modules.records import ModuleDraft, ModuleInput, Operation, op
from drawing.families import conv_input, conv_op, pool_op
from drawing.sizes import conv_sizes, rows_of

MOST_AFTER = 6
_GROUPS = 4
"""Channels before a group norm are multiples of it."""
_FEWEST_PLACES = 8
"""Along each spatial axis after the head: three poolings leave one."""

SCALARS = ("add_scalar", "subtract_scalar", "scale", "divide")
ACTIVATIONS = tuple(
    name
    for name, row in ELEMENTWISE.items()
    if not row.reads and not row.jumps and name not in SCALARS
)
PARAMETERS = ("add_bias", "subtract_bias", "multiply_weight")
ONES = tuple(name for name, row in ELEMENTWISE.items() if row.reads == "one")
"""With a parameter of one element."""


def drawn(rng: random.Random, name: str) -> Operation:
    """The elementwise operation of that name, with arguments that level 2 has."""
    return Operation(name, rng.choice(ELEMENTWISE[name].choices))


@dataclass(frozen=True, slots=True)
class _State:
    """What the next operation finds."""

    rank: int
    channels_last: bool
    spatial: int
    """Places along each spatial axis that there are at least; 1: they were pooled away."""
    reduced: bool = False
    """The channels are one place."""
    since_head: bool = True
    """Only elementwise operations since the head."""
    inputs: bool = False
    """A second input of the output's shape has been read."""


_WEIGHTS = {
    "activation": 10, "scalar": 5, "parameter": 4, "residual": 2, "input": 2, "pool": 3,
    "global pool": 2, "reduction": 2, "softmax": 2, "norm": 4,
}  # fmt: skip
_KINDS = [kind for kind, weight in _WEIGHTS.items() for _ in range(weight)]


def _next(rng: random.Random, at: _State) -> tuple[Operation | None, dict[str, Any]]:
    """An operation, and what it changes; None where the kind that was drawn cannot stand there."""
    axis = at.rank - 1 if at.channels_last else 1
    places = 0 if at.channels_last else at.spatial
    match rng.choice(_KINDS):
        case "activation":
            return drawn(rng, rng.choice(ACTIVATIONS)), {}
        case "scalar":
            return drawn(rng, rng.choice(SCALARS)), {}
        case "parameter" if not at.reduced:
            return drawn(rng, rng.choice(PARAMETERS)), {}
        case "residual" if at.since_head:
            return op(rng.choice(("add_head", "add_head", "multiply_head"))), {}
        case "input" if at.since_head and at.channels_last and not at.inputs:
            return op(rng.choice(("add_input", "multiply_input"))), {"inputs": True}
        case "pool" if places >= 4:
            kind, side = (
                rng.choice(("max", "avg")),
                rng.choice((2, 2, 2, 3) if places >= 6 else (2,)),
            )
            return pool_op(kind, at.rank - 2, side, stride=side), {"spatial": places // side}
        case "global pool" if places >= 2:
            o = op("global_pool", kind=rng.choice(("mean", "mean", "max", "sum")))
            return o, {"spatial": 1}
        case "reduction" if not at.reduced:
            name = rng.choice(("mean", "sum", "amax", "amin", "logsumexp"))
            return op(name, axes=(axis,), keepdim=True), {"reduced": True}
        case "softmax" if not at.reduced:
            return op(rng.choice(("softmax", "softmax", "log_softmax")), axis=axis), {}
        case "norm" if not at.reduced:
            return _norm(rng, at), {}
    return None, {}


def _norm(rng: random.Random, at: _State) -> Operation | None:
    affine: dict[str, Any] = {"affine": True}
    if at.channels_last:
        if at.rank == 2 and rng.random() < 0.6:
            if rng.random() < 0.5:
                return op("batch_norm", eps=rng.choice((1e-5, 1e-3)), **affine, tracked=True)
            return op("group_norm", num_groups=rng.choice((2, 4)), eps=1e-5, **affine)
        eps = rng.choice((1e-5, 1e-3, 1e-6))
        return op("layer_norm", axes=1, eps=eps, affine=rng.random() < 0.8)
    kind = rng.choice(("batch_norm", "group_norm", "instance_norm"))
    if kind == "group_norm":
        groups = rng.choice((1, 2, 4) if at.spatial > 1 else (1, 2))
        return op(kind, num_groups=groups, eps=rng.choice((1e-5, 1e-3)), **affine)
    if at.spatial < 2:
        return None
    eps = rng.choice((1e-5, 1e-3))
    if kind == "batch_norm":
        return op(kind, eps=eps, **affine, tracked=True)
    return op(kind, eps=eps, affine=rng.random() < 0.4)


_NORMS = frozenset(
    {"batch_norm", "group_norm", "instance_norm", "layer_norm", "softmax", "log_softmax"}
)
_CLIPS = frozenset({"clamp", "clamp_min", "hardtanh", "relu6", "relu", "softshrink", "hardsigmoid"})
_ALIKE: Sequence[tuple[Set[str], Set[str]]] = (
    (frozenset(SCALARS), frozenset(SCALARS)),
    (_NORMS, _NORMS),
    (
        {"relu", "abs", "square", "sigmoid", "softplus", "relu6", "hardsigmoid"},
        {"relu", "abs", "leaky_relu", "elu", "celu", "selu", "relu6"},
    ),
    (
        {"softmax", "sigmoid", "hardsigmoid", "tanh", "log_softmax", "logsigmoid"},
        {"relu", "relu6", "clamp", "clamp_min", "hardtanh", "softshrink", "elu", "celu", "selu",
         "leaky_relu"},
    ),
)  # fmt: skip
"""After one of the first none of the second: it would repeat or change nothing."""


def redundant(one: Operation, other: Operation) -> bool:
    """Whether the second of two neighbours changes nothing, or repeats its kind."""
    alike = (one.name in first and other.name in second for first, second in _ALIKE)
    return one.name == other.name or any(alike)


def _epilogue(rng: random.Random, state: _State) -> tuple[Operation, ...] | None:
    """Two to six operations; None where the draw came to nothing."""
    grown: list[Operation] = []
    for _ in range(rng.choice((2, 2, 3, 3, 4, 4, 5, 6))):
        found, changes = _next(rng, state)
        if found is None or (grown and redundant(grown[-1], found)):
            continue
        grown.append(found)
        changes["since_head"] = state.since_head and found.name in ELEMENTWISE
        state = replace(state, **changes)
    clips = sum(o.name in _CLIPS for o in grown)
    return tuple(grown) if 2 <= len(grown) <= MOST_AFTER and clips <= 1 else None


# --- heads ---------------------------------------------------------------------------------------

LINEAR = ("batch_size", "in_features", "out_features")
"""The sizes of a linear layer."""


def linear_rows(real: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Of which `real` are the main ones of a GPU."""
    return (16, 40, 24), (7, 21, 20), (3, 6, 8), real, (333, 515, 516)


def _product(rng: random.Random, kind: str) -> ModuleDraft | None:
    """A linear layer, or a batch of products."""
    linear = kind == "linear"
    inputs: list[tuple[str, tuple[str, ...]]]
    after = _epilogue(rng, _State(rank=2 if linear else 3, channels_last=True, spatial=0))
    if after is None:
        return None
    if linear:
        head = op("linear", out="out_features", bias=rng.random() < 0.8)
        inputs = [("x", LINEAR[:2]), ("y", ("batch_size", "out_features"))]
        real = rng.choice(
            ((1024, 1024, 1024), (128, 4096, 4096), (512, 2048, 1024), (2048, 512, 2048))
        )
        sizes = rows_of(LINEAR, linear_rows(real))
    else:
        head, names = op("bmm"), ("batch_size", "M", "K", "N")
        inputs = [
            (name, ("batch_size", *dims)) for name, dims in (("A", "MK"), ("B", "KN"), ("C", "MN"))
        ]
        large = rng.choice(((32, 256, 512, 256), (8, 512, 512, 1024), (64, 128, 256, 512)))
        small = ((2, 12, 24, 20), (3, 7, 13, 11), (2, 3, 5, 4))
        sizes = rows_of(names, (*small, large, (5, 131, 257, 99)))
    if not any(o.name.endswith("_input") for o in after):
        inputs.pop()
    given = tuple(ModuleInput(*one) for one in inputs)
    return ModuleDraft(f"{kind}_fused", 2, (head, *after), given, *sizes, layout="features_last")


_KERNELS = {
    1: ((3,), (5,), (7,), (4,)),
    2: ((3, 3), (5, 5), (2, 2), (3, 5)),
    3: ((3, 3, 3), (2, 2, 2), (3, 1, 3)),
}


def _convolution(rng: random.Random, kind: str) -> ModuleDraft | None:
    n, transposed = int(kind[-2]), "transpose" in kind
    after = _epilogue(rng, _State(rank=n + 2, channels_last=False, spatial=_FEWEST_PLACES))
    if after is None:
        return None
    kernel = rng.choice(_KERNELS[n])
    stride = rng.choice((1, 1, 2))
    head = conv_op(
        n, kernel, stride=stride, padding=rng.choice((0, 0, 1)) if min(kernel) > 1 else 0,
        groups=rng.choice((1, 1, 1, 2)), bias=rng.random() < 0.8, transposed=transposed,
        output_padding=rng.choice((0, 1)) if transposed and stride == 2 else 0,
    )  # fmt: skip
    grouped = _GROUPS if any(o.name == "group_norm" for o in after) else 1
    need = _FEWEST_PLACES if any("pool" in o.name for o in after) else 3
    sizes = conv_sizes(head, n, f"{head.key}{rng.random()}", multiple=grouped, need=need)
    return ModuleDraft(f"{kind}_fused", 2, (head, *after), (conv_input(n),), *sizes)


_HEADS = ("linear", "bmm", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)))
FUSED_FAMILIES = tuple(f"{head}_fused" for head in _HEADS)


def pairs_of(operations: Sequence[Operation]) -> tuple[str, ...]:
    """The neighbours by name, "conv2d gelu": what the split is made by."""
    return tuple(f"{a.name} {b.name}" for a, b in pairwise(operations))


def fused_drafts(family: str) -> Iterator[ModuleDraft]:
    """Drafts of a family, without end and with repeats; the same ones each time."""
    rng = random.Random(f"modules:{family}")
    head = family.removesuffix("_fused")
    while True:
        found = (_convolution if head.startswith("conv") else _product)(rng, head)
        if found is not None:
            yield found

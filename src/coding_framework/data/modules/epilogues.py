"""Level 2: a product or a convolution and two to six operations after it, drawn from a grammar.

The grammar keeps what the operations after it may assume: where the channels lie, how many spatial
axes are left, and whether an axis has been reduced to one place. What comes out is never the same
everywhere: nothing is normalised over an axis of one place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from coding_framework.data.modules.layer_families import conv_input, conv_op, pool_op
from coding_framework.data.modules.pointwise import POINTWISE
from coding_framework.data.modules.records import (
    Layout,
    ModuleDraft,
    ModuleInput,
    Operation,
    op,
)
from coding_framework.data.modules.sizes import AllSizes, all_sizes, conv_sizes

MOST_AFTER = 6
_GROUPS = 4
"""Channels before a group norm are multiples of it."""
_FEWEST_PLACES = 8
"""Along each spatial axis after the head: three poolings leave one."""


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


_Grown = tuple[Operation, _State]
_Grow = Callable[[random.Random, _State], _Grown | None]

ACTIVATIONS = tuple(
    row.name
    for row in POINTWISE.values()
    if not row.reads
    and not row.jumps
    and not row.name.endswith("_scalar")
    and row.name not in ("scale", "divide")
)
SCALARS = ("add_scalar", "subtract_scalar", "scale", "divide")
PARAMETERS = ("add_bias", "subtract_bias", "multiply_weight")
ONES = tuple(row.name for row in POINTWISE.values() if row.reads == "one")
"""With a parameter of one element."""


def drawn(rng: random.Random, name: str) -> Operation:
    """The elementwise operation of that name, with arguments that level 2 has."""
    return Operation(name, rng.choice(POINTWISE[name].choices))


def _activation(rng: random.Random, state: _State) -> _Grown | None:
    return drawn(rng, rng.choice(ACTIVATIONS)), state


def _scalar(rng: random.Random, state: _State) -> _Grown | None:
    return drawn(rng, rng.choice(SCALARS)), state


def _parameter(rng: random.Random, state: _State) -> _Grown | None:
    return None if state.reduced else (drawn(rng, rng.choice(PARAMETERS)), state)


def _residual(rng: random.Random, state: _State) -> _Grown | None:
    """The head's own output again."""
    if not state.since_head:
        return None
    return op(rng.choice(("add_head", "add_head", "multiply_head"))), state


def _other_input(rng: random.Random, state: _State) -> _Grown | None:
    if not (state.since_head and state.channels_last) or state.inputs:
        return None
    return op(rng.choice(("add_input", "multiply_input"))), replace(state, inputs=True)


def _pool(rng: random.Random, state: _State) -> _Grown | None:
    n = state.rank - 2
    if state.channels_last or state.spatial < 4:
        return None
    kind = rng.choice(("max", "avg"))
    kernel = rng.choice((2, 2, 2, 3) if state.spatial >= 6 else (2,))
    o = pool_op(kind, n, kernel, stride=kernel)
    return o, replace(state, spatial=state.spatial // kernel, since_head=False)


def _global_pool(rng: random.Random, state: _State) -> _Grown | None:
    if state.channels_last or state.spatial < 2:
        return None
    o = op("global_pool", kind=rng.choice(("mean", "mean", "max", "sum")))
    return o, replace(state, spatial=1, since_head=False)


def _channel_reduction(rng: random.Random, state: _State) -> _Grown | None:
    if state.reduced:
        return None
    axis = state.rank - 1 if state.channels_last else 1
    name = rng.choice(("mean", "sum", "amax", "amin", "logsumexp"))
    return op(name, axes=(axis,), keepdim=True), replace(state, reduced=True, since_head=False)


def _softmax(rng: random.Random, state: _State) -> _Grown | None:
    if state.reduced:
        return None
    axis = state.rank - 1 if state.channels_last else 1
    return op(rng.choice(("softmax", "softmax", "log_softmax")), axis=axis), replace(
        state, since_head=False
    )


def _norm(rng: random.Random, state: _State) -> _Grown | None:
    if state.reduced:
        return None
    after = replace(state, since_head=False)
    if state.channels_last:
        if state.rank == 2 and rng.random() < 0.6:
            if rng.random() < 0.5:
                return op(
                    "batch_norm", eps=rng.choice((1e-5, 1e-3)), affine=True, tracked=True
                ), after
            return op("group_norm", num_groups=rng.choice((2, 4)), eps=1e-5, affine=True), after
        return op(
            "layer_norm", axes=1, eps=rng.choice((1e-5, 1e-3, 1e-6)), affine=rng.random() < 0.8
        ), after
    kind = rng.choice(("batch_norm", "group_norm", "instance_norm"))
    if kind == "group_norm":
        groups = rng.choice((1, 2, 4) if state.spatial > 1 else (1, 2))
        return op(kind, num_groups=groups, eps=rng.choice((1e-5, 1e-3)), affine=True), after
    if state.spatial < 2:
        return None
    if kind == "batch_norm":
        return op(kind, eps=rng.choice((1e-5, 1e-3)), affine=True, tracked=True), after
    return op(kind, eps=rng.choice((1e-5, 1e-3)), affine=rng.random() < 0.4), after


_GROWTH: tuple[tuple[_Grow, int], ...] = (
    (_activation, 10), (_scalar, 5), (_parameter, 4), (_residual, 2), (_other_input, 2), (_pool, 3),
    (_global_pool, 2), (_channel_reduction, 2), (_softmax, 2), (_norm, 4),
)  # fmt: skip
_RULES = [rule for rule, weight in _GROWTH for _ in range(weight)]


def redundant(one: Operation, other: Operation) -> bool:
    """Whether the second of two neighbours changes nothing, or repeats its kind."""
    if one.name == other.name or (one.name in SCALARS and other.name in SCALARS):
        return True
    bounded = {"relu", "abs", "square", "sigmoid", "softplus", "relu6", "hardsigmoid"}
    if one.name in bounded and other.name in (
        "relu",
        "abs",
        "leaky_relu",
        "elu",
        "celu",
        "selu",
        "relu6",
    ):
        return True
    if one.name in (
        "softmax",
        "sigmoid",
        "hardsigmoid",
        "tanh",
        "log_softmax",
        "logsigmoid",
    ) and other.name in (
        "relu",
        "relu6",
        "clamp",
        "clamp_min",
        "hardtanh",
        "softshrink",
        "elu",
        "celu",
        "selu",
        "leaky_relu",
    ):
        return True
    return one.name in _NORMS and other.name in _NORMS


_NORMS = frozenset(
    {"batch_norm", "group_norm", "instance_norm", "layer_norm", "softmax", "log_softmax"}
)
_CLIPS = frozenset({"clamp", "clamp_min", "hardtanh", "relu6", "relu", "softshrink", "hardsigmoid"})


def _epilogue(rng: random.Random, state: _State) -> tuple[Operation, ...] | None:
    """Two to six operations; None where the draw came to nothing."""
    grown: list[Operation] = []
    for _ in range(rng.choice((2, 2, 3, 3, 4, 4, 5, 6))):
        found = rng.choice(_RULES)(rng, state)
        if found is None or (grown and redundant(grown[-1], found[0])):
            continue
        grown.append(found[0])
        state = found[1]
    clips = sum(o.name in _CLIPS for o in grown)
    return tuple(grown) if 2 <= len(grown) <= MOST_AFTER and clips <= 1 else None


# --- heads ---------------------------------------------------------------------------------------


def _linear_draft(rng: random.Random) -> ModuleDraft | None:
    after = _epilogue(rng, _State(rank=2, channels_last=True, spatial=0))
    if after is None:
        return None
    head = op("linear", out="out_features", bias=rng.random() < 0.8)
    inputs = [ModuleInput("x", ("batch_size", "in_features"))]
    if any(o.name.endswith("_input") for o in after):
        inputs.append(ModuleInput("y", ("batch_size", "out_features")))
    real = rng.choice(((1024, 1024, 1024), (128, 4096, 4096), (512, 2048, 1024), (2048, 512, 2048)))
    sizes = linear_sizes(real)
    return _draft("linear_fused", (head, *after), inputs, sizes, "features_last")


def linear_sizes(real: tuple[int, int, int]) -> AllSizes:
    """Of a linear layer, of which `real` are the main ones of a GPU."""
    names = ("batch_size", "in_features", "out_features")
    rows = ((16, 40, 24), (7, 21, 20), (3, 6, 8), real, (333, 515, 516))
    return all_sizes([dict(zip(names, row, strict=True)) for row in rows])


def _bmm_draft(rng: random.Random) -> ModuleDraft | None:
    after = _epilogue(rng, _State(rank=3, channels_last=True, spatial=0))
    if after is None:
        return None
    inputs = [
        ModuleInput("A", ("batch_size", "M", "K")),
        ModuleInput("B", ("batch_size", "K", "N")),
    ]
    if any(o.name.endswith("_input") for o in after):
        inputs.append(ModuleInput("C", ("batch_size", "M", "N")))
    real = rng.choice(((32, 256, 512, 256), (8, 512, 512, 1024), (64, 128, 256, 512)))
    names = ("batch_size", "M", "K", "N")
    rows = ((2, 12, 24, 20), (3, 7, 13, 11), (2, 3, 5, 4), real, (5, 131, 257, 99))
    sizes = all_sizes([dict(zip(names, row, strict=True)) for row in rows])
    return _draft("bmm_fused", (op("bmm"), *after), inputs, sizes, "features_last")


_KERNELS = {
    1: ((3,), (5,), (7,), (4,)),
    2: ((3, 3), (5, 5), (2, 2), (3, 5)),
    3: ((3, 3, 3), (2, 2, 2), (3, 1, 3)),
}


def _conv_draft(rng: random.Random, n: int, transposed: bool) -> ModuleDraft | None:
    after = _epilogue(rng, _State(rank=n + 2, channels_last=False, spatial=_FEWEST_PLACES))
    if after is None:
        return None
    kernel = rng.choice(_KERNELS[n])
    stride = rng.choice((1, 1, 2))
    padding = rng.choice((0, 0, 1)) if min(kernel) > 1 else 0
    head = conv_op(
        n,
        kernel,
        stride=stride,
        padding=padding,
        groups=rng.choice((1, 1, 1, 2)),
        bias=rng.random() < 0.8,
        transposed=transposed,
        output_padding=rng.choice((0, 1)) if transposed and stride == 2 else 0,
    )
    grouped = _GROUPS if any(o.name == "group_norm" for o in after) else 1
    pooled = any("pool" in o.name for o in after)
    need = _FEWEST_PLACES if pooled else 3
    key = f"{head.key}{rng.random()}"
    sizes = conv_sizes(head, n, key, multiple=grouped, need=need)
    kind = "conv_transpose" if transposed else "conv"
    inputs = [conv_input(n)]
    return _draft(f"{kind}{n}d_fused", (head, *after), inputs, sizes, "channels_first")


def _draft(
    family: str,
    operations: tuple[Operation, ...],
    inputs: Sequence[ModuleInput],
    sizes: AllSizes,
    layout: Layout,
) -> ModuleDraft:
    return ModuleDraft(family, 2, operations, tuple(inputs), *sizes, layout=layout)


_HEADS: tuple[tuple[str, Callable[[random.Random], ModuleDraft | None]], ...] = (
    ("linear_fused", _linear_draft),
    ("bmm_fused", _bmm_draft),
    ("conv1d_fused", lambda rng: _conv_draft(rng, 1, False)),
    ("conv2d_fused", lambda rng: _conv_draft(rng, 2, False)),
    ("conv3d_fused", lambda rng: _conv_draft(rng, 3, False)),
    ("conv_transpose1d_fused", lambda rng: _conv_draft(rng, 1, True)),
    ("conv_transpose2d_fused", lambda rng: _conv_draft(rng, 2, True)),
    ("conv_transpose3d_fused", lambda rng: _conv_draft(rng, 3, True)),
)
FUSED_FAMILIES = tuple(name for name, _ in _HEADS)


def pairs_of(draft: ModuleDraft) -> tuple[str, ...]:
    """The neighbours among the operations after the head, by name: what the split is made by."""
    return tuple(f"{a.name} {b.name}" for a, b in pairwise(draft.operations[1:]))


def fused_drafts(family: str) -> Iterator[ModuleDraft]:
    """Drafts of a family, without end and with repeats; the same ones each time."""
    rng = random.Random(f"modules:{family}")
    draw = dict(_HEADS)[family]
    while True:
        found = draw(rng)
        if found is not None:
            yield found

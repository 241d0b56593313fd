"""Blocks, as users' modules have them: two layers (perceptrons, two convolutions, a convolution and
a classifier), a layer and what ends it (a sum or an extremum over channels, places or all, whose
axes are dropped or kept; parameters of one element on the way), and what stands between layers (a
norm with another tensor added before or after it, a gate); some add their input to what comes out,
or gate it. SFT alone is shown them (`wider`): a policy that saw one layer and what follows it
failed at them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from coding_framework.data.modules.records import ModuleDraft, ModuleInput, Operation, op
from drawing.epilogues import (
    ACTIVATIONS,
    LINEAR,
    ONES,
    PARAMETERS,
    SCALARS,
    drawn,
    linear_rows,
    redundant,
)
from drawing.families import conv_input, conv_op, pool_op, tensor
from drawing.sizes import (
    SPATIAL,
    conv_sizes,
    five,
    plain_sizes,
    rows_of,
    with_sizes,
)

DRAWS = 800
"""Of each kind; many have a pair of operations that is held out, and some come twice."""
_COMMON = ("relu", "gelu", "silu", "leaky_relu", "tanh", "sigmoid", "elu", "hardswish", "relu6")
"""Drawn twice as often as all activations together."""
_OPEN = ("relu", "leaky_relu", "elu", "gelu", "silu", "mish", "softplus", "hardswish")
"""What a large sum leaves as different as it was."""
_PLACES = 12
"""Along each spatial axis after the first layer: a pool and a second window leave some."""
Operations = Iterable[Operation]


def blocks() -> Iterator[ModuleDraft]:
    """Drafts of all kinds, the same ones each time."""
    for n in range(DRAWS):
        yield _perceptron(random.Random(f"block linear {n}"))
        for axes in (1, 2, 3):
            yield _convolutions(random.Random(f"block conv{axes}d {n}"), axes)
        yield _between(random.Random(f"block between {n}"))
        yield _classifier(random.Random(f"block classifier {n}"), 2 - n % 4 // 3)
        for axes in (0, 1, 2, 3):
            yield _ended(random.Random(f"block ended {axes} {n}"), axes)


def _activation(rng: random.Random) -> Operation:
    return drawn(rng, rng.choice(_COMMON if rng.random() < 2 / 3 else ACTIVATIONS))


def _after(rng: random.Random, before: Operation, *last: Operation) -> list[Operation]:
    """Up to two operations at the end."""
    found: list[Operation] = []
    chosen = (*last, _activation(rng))
    for one in rng.sample(chosen, min(len(chosen), rng.choice((0, 0, 1, 1, 2)))):
        if not redundant(found[-1] if found else before, one):
            found.append(one)
    return found


def _shortcut(rng: random.Random) -> Operation:
    return op(rng.choice(("add_input", "add_input", "add_input", "multiply_input")))


def _linear(rng: random.Random, out: str) -> Operation:
    return op("linear", out=out, bias=rng.random() < 0.8)


def _of_features(
    operations: Operations, names: tuple[str, ...], rows: Iterable[tuple[int, ...]]
) -> ModuleDraft:
    """Of layers of features."""
    given, sizes = (ModuleInput("x", LINEAR[:2]),), rows_of(names, rows)
    return ModuleDraft("linear_fused", 2, tuple(operations), given, *sizes, layout="features_last")


def _of_places(family: str, n: int, operations: list[Operation]) -> ModuleDraft:
    """Of layers with n spatial axes."""
    key = " ".join(o.key for o in operations)
    found = conv_sizes(operations[0], n, f"block {key}", multiple=4, need=_PLACES)
    outs = [sizes["out_channels"] for sizes in five(found)]
    found = with_sizes(found, hidden_channels=outs, out_features=[3 * out for out in outs])
    used = {o.get("out") for o in operations} | {"batch_size", "in_channels", *SPATIAL[n]}
    names = [name for name in found[0][0] if name in used]
    sizes = rows_of(names, ([one[name] for name in names] for one in five(found)))
    return ModuleDraft(family, 2, tuple(operations), (conv_input(n),), *sizes)


def _perceptron(rng: random.Random) -> ModuleDraft:
    """[norm] linear [norm] activation linear, and what comes after it."""

    def norm() -> Operation:
        if rng.random() < 0.7:
            return op("layer_norm", axes=1, eps=rng.choice((1e-5, 1e-6)), affine=True)
        return op("batch_norm", eps=1e-5, affine=True, tracked=True)

    again = rng.random() < 0.4
    last = _linear(rng, "in_features" if again else "out_features")
    operations = [
        *([norm()] if rng.random() < 0.3 else []),
        _linear(rng, "hidden_features"),
        *([norm()] if rng.random() < 0.25 else []),
        _activation(rng),
        last,
        *([_shortcut(rng)] if again else []),
        *_after(rng, last, op("softmax", axis=1), op("log_softmax", axis=1), norm(),
                op("scale", scale_factor=rng.choice((0.5, 2.0)))),
    ]  # fmt: skip
    real = rng.choice(((1024, 1024, 4096, 1024), (4096, 512, 2048, 512), (512, 784, 512, 256)))
    rows = ((16, 40, 36, 24), (7, 21, 20, 12), (3, 6, 8, 4), real, (333, 515, 518, 260))
    names = (*LINEAR[:2], "hidden_features", "out_features")[: 4 - again]
    return _of_features(operations, names, (row[: len(names)] for row in rows))


def _norm(rng: random.Random) -> Operation:
    kind = rng.choice(("batch_norm", "batch_norm", "group_norm", "instance_norm"))
    if kind == "group_norm":
        return op(kind, num_groups=rng.choice((2, 4)), eps=1e-5, affine=True)
    if kind == "instance_norm":
        return op(kind, eps=1e-5, affine=rng.random() < 0.4)
    return op(kind, eps=1e-5, affine=True, tracked=True)


def _pool(rng: random.Random, n: int) -> Operation:
    return pool_op("max" if rng.random() < 0.7 else "avg", n, 2, stride=2)


def _window(rng: random.Random, n: int, out: str, *, same: bool = False) -> Operation:
    """same: as many places come out as go in."""
    side = rng.choice((3, 3, 3, 5) if n < 3 else (3, 3, 3 if same else 2))
    padding = side // 2 if same or rng.random() < 2 / 3 else 0
    return conv_op(n, (side,) * n, padding=padding, bias=rng.random() < 0.7, out=out)


def _convolutions(rng: random.Random, n: int) -> ModuleDraft:
    """convolution [norm] activation [pool] convolution, and what comes after it."""
    again = rng.random() < 0.3
    first = _window(rng, n, "hidden_channels", same=again)
    last = _window(rng, n, "in_channels" if again else "out_channels", same=again)
    operations = [
        first,
        *([_norm(rng)] if rng.random() < 0.4 else []),
        _activation(rng),
        *([_pool(rng, n)] if rng.random() < 0.3 and not again else []),
        last,
        *([_norm(rng)] if again and rng.random() < 0.4 else []),
        *([_shortcut(rng)] if again else []),
        *_after(rng, last, _norm(rng), _pool(rng, n)),
    ]
    return _of_places(f"conv{n}d_fused", n, operations)


def _classifier(rng: random.Random, n: int) -> ModuleDraft:
    """convolution [norm] activation, the mean of each channel, linear."""
    operations = [
        _window(rng, n, "hidden_channels"),
        *([_norm(rng)] if rng.random() < 0.5 else []),
        _activation(rng),
        op("mean", axes=tuple(range(2, n + 2)), keepdim=False),
        _linear(rng, "out_features"),
        *([op("log_softmax", axis=1)] if rng.random() < 0.3 else []),
    ]
    return _of_places(f"conv{n}d_fused", n, operations)


def _ended(rng: random.Random, n: int) -> ModuleDraft:
    """A layer of n spatial axes (0: linear), up to three elementwise operations or a pool, what is
    left of some axes, and perhaps an elementwise operation."""
    operations = [_head(rng, n) if n else _linear(rng, "out_features")]
    kinds = ("activation", "activation", "scalar", "parameter", *(("pool",) if n else ()))
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3))):
        match rng.choice(kinds):
            case "activation":
                one = _activation(rng)
            case "scalar":
                one = drawn(rng, rng.choice(SCALARS))
            case "parameter":
                one = op(rng.choice((*PARAMETERS, *ONES)))
            case _:
                one = _pool(rng, n)
        if not redundant(operations[-1], one) and one.name not in {o.name for o in operations}:
            operations.append(one)
    places = tuple(range(2, n + 2))
    axes = rng.choice(((1,), places, places, (1, *places), (places[-1],))) if n else (1,)
    name = rng.choice(("mean", "sum", "amax", "amin", "logsumexp"))
    operations.append(op(name, axes=axes, keepdim=rng.random() < 0.35))
    if rng.random() < 0.5:
        operations.append(drawn(rng, rng.choice((*_OPEN, *SCALARS))))
    if n:
        return _of_places(f"{operations[0].name}_fused", n, operations)
    real = rng.choice(((1024, 1024, 1024), (128, 4096, 4096), (512, 2048, 1024)))
    return _of_features(operations, LINEAR, linear_rows(real))


def _head(rng: random.Random, n: int) -> Operation:
    transposed, side = rng.random() < 0.5, rng.choice((2, 3, 3, 4, 5) if n < 3 else (2, 3, 3))
    stride = rng.choice((1, 2) if transposed else (1, 1, 1, 2))
    more = int(transposed and stride == 2 and rng.random() < 0.5)
    return conv_op(
        n, (side,) * n, stride=stride, padding=rng.choice((0, side // 2)), bias=rng.random() < 0.8,
        transposed=transposed, output_padding=more,
    )  # fmt: skip


def _between(rng: random.Random) -> ModuleDraft:
    """A norm or a softmax, an activation, and another tensor or the input again."""
    rank = rng.choice((2, 3, 3, 4, 4))
    family, norm = _norm_of(rng, rank)
    act = [one for one in [_activation(rng)] if rng.random() < 0.6 and not redundant(norm, one)]
    other, two = [_shortcut(rng)], True
    form = rng.randrange(4)
    if form == 0:
        operations = [*other, norm, *act]
    elif form == 1:
        operations = [*act, norm, *other]
    elif form == 2:
        operations, two = [norm, *act, *other, *_after(rng, other[0])], rng.random() < 0.3
    else:
        operations = [_activation(rng), op("multiply_input"), norm]
    names = ("x", rng.choice(("y", "residual", "gate"))) if two else ("x",)
    given = tuple(tensor(name, rank) for name in names)
    sizes = plain_sizes(rank, f"block {' '.join(o.key for o in operations)}")
    return ModuleDraft(family, 2, tuple(operations), given, *sizes,
                       layout="channels_first" if rank == 4 else "features_last")  # fmt: skip


def _norm_of(rng: random.Random, rank: int) -> tuple[str, Operation]:
    """(its family, the operation)."""
    if rank == 4:
        o = _norm(rng)
        return f"{o.name.removesuffix('_norm')}_normalisation", o
    kind = rng.choice(("layer", "layer", "rms", "softmax"))
    if kind == "softmax":
        return "softmax", op("softmax", axis=rank - 1)
    if kind == "rms":
        return "rms_normalisation", op("rms_norm", axis=rank - 1, eps=1e-6, affine=True)
    eps = rng.choice((1e-5, 1e-6))
    return "layer_normalisation", op("layer_norm", axes=1, eps=eps, affine=True)

"""Modules that the catalogue's grids leave out: of level 1 more ranks, axes, windows and factors of
the same families, an elementwise operation or two after a layer, and one before a loss; and blocks
(`blocks`). SFT alone is shown them: of the grids it sees each combination once, and takes one axis
for another.

Each is a module of the catalogue's kind, or nearly one, and what comes after it. Those of a family
come in an order that their keys decide.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, permutations, product
from math import prod
from typing import Any

from coding_framework.data.modules import layer_families as layers
from coding_framework.data.modules import tensor_families as tensors
from coding_framework.data.modules.blocks import blocks
from coding_framework.data.modules.epilogues import ACTIVATIONS, SCALARS, drawn, redundant
from coding_framework.data.modules.records import ModuleDraft, Operation, Sizes, op

MANY_TAPS, MOST_TAPS = 30, 61
"""Taps from which convolutions have many, and up to which a bit for each fits in 64."""
MOST_WINDOWS = 400
"""Convolutions, and pools, of a number of axes that are looked at."""
_AFTER_LAYERS = frozenset({
    "max_pooling", "average_pooling", "adaptive_pooling", "batch_normalisation",
    "instance_normalisation", "group_normalisation", "layer_normalisation", "rms_normalisation",
    "unit_normalisation", "linear_layer", "depthwise_convolution", "pointwise_convolution",
    "embedding",
})  # fmt: skip
"""Families whose fast kernels take what comes after them along."""


@dataclass(frozen=True, slots=True)
class Wider:
    """A module of one layer and what comes after it."""

    bare: ModuleDraft
    after: tuple[Operation, ...] = ()
    before: tuple[Operation, ...] = ()
    square: bool = False
    """Of a product of two matrices: all extents are one."""

    @property
    def draft(self) -> ModuleDraft:
        operations = (*self.before, *self.bare.operations, *self.after)
        draft = replace(self.bare, operations=operations, part="train")
        if not self.square:
            return draft
        matmul, *others = operations
        return replace(
            draft,
            operations=(op("matmul", **dict(matmul.arguments), square=True), *others),
            inputs=tuple(replace(given, dims=("N", "N")) for given in draft.inputs),
            sizes=_square(draft.sizes),
            gpu_sizes=_square(draft.gpu_sizes),
        )


def _square(found: tuple[Sizes, Sizes, Sizes]) -> tuple[Sizes, Sizes, Sizes]:
    main, odd, tiny = ({"N": sizes["M"]} for sizes in found)
    return main, odd, tiny


def wider_modules(catalogue: Sequence[ModuleDraft]) -> Mapping[str, list[Wider]]:
    """By family; products of two matrices, and a family's blocks, are one of their own. catalogue:
    drafts of level 1; of some families each comes with an elementwise operation after it."""
    found: dict[str, list[Wider]] = {}
    grids: tuple[Callable[[], Iterator[Wider]], ...] = (
        _reductions, _extrema, _softmaxes, _scans, _losses, _products, _moves, _pads, _convolutions,
        _depthwise, _pools, _norms,
    )  # fmt: skip
    for one in chain(*(grid() for grid in grids), _activated(catalogue), map(Wider, blocks())):
        found.setdefault(_group(one.bare), []).append(one)
    return {family: sorted(ones, key=_place) for family, ones in sorted(found.items())}


def _group(bare: ModuleDraft) -> str:
    """Of products of two matrices as many are shown as of all others: a policy that saw mostly
    batches took two matrices for one (no right answer to 3 of 3, where of 7 batches 4 were). And of
    convolutions whose kernels keep a bit of each tap in 64 and not in 32 bits, or have no fast ones
    since they have more taps: a policy that saw hardly any took them for the others."""
    if bare.level == 2:
        layers = sum(o.name.startswith(("conv", "linear")) for o in bare.operations)
        return f"{'layers that end' if layers == 1 else 'blocks'} of {bare.family}"
    if bare.family == "matrix_product" and bare.rank == 2:
        return f"{bare.family} of two axes"
    if "convolution_" not in bare.family:
        return bare.family
    taps = prod(bare.operations[0].integers("kernel_size"))
    size = "most" if taps > MOST_TAPS else "many" if taps >= MANY_TAPS else "few"
    return f"{bare.family} of {size} taps"


def _place(one: Wider) -> bytes:
    return hashlib.sha256(one.draft.key.encode()).digest()


def _axes(rank: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, min(rank, 3) + 1):
        yield from combinations(range(rank), count)


_FACTORS = ((), (op("scale", scale_factor=0.5),), (op("divide", divisor=3.0),))


def _reductions() -> Iterator[Wider]:
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("sum_reduction", "sum", {}), ("sum_reduction", "mean", {}),
        ("extremum_reduction", "amax", {}), ("extremum_reduction", "amin", {}),
        ("logsumexp_reduction", "logsumexp", {}),
        *(("moment_reduction", n, {"unbiased": u}) for n in ("var", "std") for u in (True, False)),
        *(("norm_reduction", "vector_norm", {"p": p}) for p in (1.0, 2.0, 3.0, "inf")),
    ]  # fmt: skip
    for (family, name, more), rank in product(kinds, (2, 3, 4, 5)):
        if family == "moment_reduction" and rank == 2:
            continue
        for axes, keepdim, after in product(_axes(rank), (True, False), _FACTORS):
            o = op(name, axes=axes, keepdim=keepdim, **more)
            yield Wider(tensors.tensor_draft(family, rank, o), after)


def _extrema() -> Iterator[Wider]:
    kinds = (("extremum_reduction", ("max", "min")), ("arg_reduction", ("argmax", "argmin")))
    for (family, names), rank in product(kinds, (2, 3, 4, 5)):
        for name, axis, keepdim in product(names, range(rank), (True, False)):
            o = op(name, axes=(axis,), keepdim=keepdim)
            yield Wider(tensors.tensor_draft(family, rank, o))


def _softmaxes() -> Iterator[Wider]:
    before = [(), *((op("scale", scale_factor=f),) for f in (0.25, 0.5, 1.5, 2.0)),
              *((op("divide", divisor=d),) for d in (2.0, 4.0, 8.0))]  # fmt: skip
    for name, rank in product(("softmax", "log_softmax", "softmin"), (2, 3, 4, 5)):
        for axis, first, after in product(range(rank), before, _FACTORS[:2]):
            o = op(name, axis=axis)
            yield Wider(tensors.tensor_draft("softmax", rank, *first, o), after)


def _scans() -> Iterator[Wider]:
    for draft, after in product(tensors.scans((2, 3, 4, 5)), _FACTORS):
        yield Wider(draft, after)


def _losses() -> Iterator[Wider]:
    """With a factor, and of what an activation gives."""
    rng = random.Random("wider losses")
    for draft in tensors.regression_losses():
        yield from (Wider(draft, after) for after in _FACTORS[1:])
        first = drawn(rng, rng.choice(ACTIVATIONS))
        yield Wider(draft, before=(first,))
    for draft in chain(tensors.classification_losses(), tensors.margin_losses()):
        if draft.operations[0].name != "triplet_margin_loss":  # by its values KernelBench's own
            yield from (Wider(draft, after) for after in _FACTORS[1:])


def _products() -> Iterator[Wider]:
    rng = random.Random("wider products")
    steps = [drawn(rng, name) for name in (*ACTIVATIONS, *SCALARS)]
    for rank, ta, tb, first in product((2, 3, 4), (False, True), (False, True), steps):
        bare = tensors.product_draft(rank, ta, tb, first)
        yield Wider(bare)
        second = drawn(rng, rng.choice(ACTIVATIONS if first.name in SCALARS else SCALARS))
        if not redundant(first, second):
            yield Wider(bare, (second,))
        if rank == 2:
            yield Wider(bare, square=True)


def _moves() -> Iterator[Wider]:
    for rank in (2, 3, 4, 5):
        for order in permutations(range(rank)):
            if rank > 2 and order != tuple(range(rank)):
                o = op("permute", order=order)
                yield Wider(tensors.tensor_draft("permutation", rank, o))
        for axes in _axes(rank):
            yield Wider(tensors.tensor_draft("move", rank, op("flip", axes=axes)))
        for axis, shifts in product(range(rank), (1, -1, 2, -2, 3, 5)):
            o = op("roll", shifts=shifts, axis=axis)
            yield Wider(tensors.tensor_draft("move", rank, o))
        for name, diagonal in product(("tril", "triu"), (-3, -2, -1, 0, 1, 2, 3)):
            yield Wider(tensors.tensor_draft("move", rank, op(name, diagonal=diagonal)))


def _pads() -> Iterator[Wider]:
    widths = ((0, 1), (3, 1), (1, 0, 1, 0), (2, 1, 0, 1), (0, 3, 2, 0), (1, -1), (2, 3))
    for width, value, rank in product(widths, (0.0, -1.0, 0.5), (2, 3, 4)):
        o = op("pad", widths=width, mode="constant", value=value)
        yield Wider(tensors.tensor_draft("padding", rank, o))


_Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Kernel, stride, padding and dilation of each axis."""


def _windows(
    rng: random.Random, n: int, transposed: bool = False, large: Sequence[tuple[int, int]] = (),
    count: int = MOST_WINDOWS,
) -> Iterator[_Window]:  # fmt: skip
    """large: kernels of two axes, in place of others."""
    most = {1: 11, 2: 7, 3: 4}
    for _ in range(count):
        kernel = rng.choice(large) if large else _by_axis(rng, n, range(1, most[n] + 1))
        stride = _by_axis(rng, n, (1, 1, 2, 3))
        padding = _by_axis(rng, n, range(4))
        dilation = _by_axis(rng, n, (1, 1, 2, 3))
        axes = zip(kernel, dilation, padding, strict=True)
        within = all(p <= (d * (k - 1) if transposed else k) for k, d, p in axes)
        if max(kernel) > 1 and within:
            yield kernel, stride, padding, dilation


def _convolutions() -> Iterator[Wider]:
    many, most = _of_taps(MANY_TAPS, MOST_TAPS), _of_taps(MOST_TAPS + 1, 121)
    kinds: tuple[tuple[int, str, Sequence[tuple[int, int]], int], ...] = (
        (1, "", (), MOST_WINDOWS), (2, "", (), MOST_WINDOWS), (3, "", (), MOST_WINDOWS),
        (2, " many", many, MOST_WINDOWS), (2, " most", most, MOST_WINDOWS // 5),
    )  # fmt: skip
    for (n, kind, large, count), transposed in product(kinds, (False, True)):
        rng = random.Random(f"wider convolutions {n} {transposed}{kind}")
        for kernel, stride, padding, dilation in _windows(rng, n, transposed, large, count):
            o = layers.conv_op(
                n, kernel, stride=stride, padding=padding, dilation=dilation,
                groups=rng.choice((1, 1, 1, 2, 4)), bias=rng.random() < 0.5, transposed=transposed,
                output_padding=rng.randint(0, min(stride) - 1) if transposed else 0,
            )  # fmt: skip
            family = f"{'transposed_' if transposed else ''}convolution_{n}d"
            yield Wider(layers.conv_draft(family, n, o))


def _of_taps(least: int, most: int) -> list[tuple[int, int]]:
    """Kernels of two axes, mostly of unequal sides."""
    return [(a, b) for a in range(2, 12) for b in range(2, 12) if least <= a * b <= most]


def _depthwise() -> Iterator[Wider]:
    for n in (1, 2, 3):
        rng = random.Random(f"wider depthwise convolutions {n}")
        for kernel, stride, padding, dilation in _windows(rng, n):
            o = layers.conv_op(
                n, kernel, stride=stride, padding=padding, dilation=dilation, groups=-1,
                bias=rng.random() < 0.5, out="in_channels",
            )  # fmt: skip
            yield Wider(layers.conv_draft("depthwise_convolution", n, o))


def _by_axis(rng: random.Random, n: int, values: Sequence[int]) -> tuple[int, ...]:
    """A number for each of n axes: the same for all, or one of its own for each."""
    if rng.random() < 0.3:
        return tuple(rng.choice(values) for _ in range(n))
    return (rng.choice(values),) * n


def _pools() -> Iterator[Wider]:
    for n in (1, 2, 3):
        rng = random.Random(f"wider pools {n}")
        for _ in range(MOST_WINDOWS):
            side, stride = rng.randint(2, 7), rng.randint(1, 4)
            same = (n, side, stride, rng.randint(0, 1))
            if rng.random() < 0.5:
                o = layers.pool_op("avg", *same, count_include_pad=rng.random() < 0.5)
                yield Wider(layers.pool_draft("average_pooling", n, o))
            else:
                dilation, ceil = rng.choice((1, 1, 2)), rng.random() < 0.3
                o = layers.pool_op("max", *same, dilation=dilation, ceil_mode=ceil)
                yield Wider(layers.pool_draft("max_pooling", n, o))


def _norms() -> Iterator[Wider]:
    for rank, axes, eps, affine in product(
        (2, 3, 4, 5), (1, 2, 3, 4), (1e-5, 1e-4, 0.01), (True, False)
    ):
        instance = axes == rank - 2 and not affine  # an instance norm, which KernelBench has
        if axes < rank and not instance:
            o = op("layer_norm", axes=axes, eps=eps, affine=affine)
            yield Wider(layers.norm_draft("layer_normalisation", rank, o, channels_last=True))
    for rank, p in product((2, 3, 4, 5), (1.0, 2.0, 3.0)):
        for axis, after in product(range(rank), _FACTORS):
            o = op("normalize", p=p, axis=axis)
            yield Wider(layers.norm_draft("unit_normalisation", rank, o), after)


def _activated(catalogue: Sequence[ModuleDraft]) -> Iterator[Wider]:
    for draft in catalogue:
        if draft.family not in _AFTER_LAYERS:
            continue
        rng = random.Random(f"wider {draft.key}")
        for name in rng.sample(ACTIVATIONS, 3):
            after = drawn(rng, name)
            if not redundant(draft.operations[-1], after):
                yield Wider(draft, (after,))

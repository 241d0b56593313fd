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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import prod

from coding_framework.data.modules.records import ModuleDraft, Operation, ThreeSizes, op
from drawing import families as level_1
from drawing.blocks import blocks
from drawing.epilogues import ACTIVATIONS, SCALARS, drawn, redundant
from drawing.families import BOTH, conv_draft, conv_op, pool_draft, pool_op

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


def _square(found: ThreeSizes) -> ThreeSizes:
    main, odd, tiny = ({"N": sizes["M"]} for sizes in found)
    return main, odd, tiny


def wider_modules(catalogue: Sequence[ModuleDraft]) -> Mapping[str, list[Wider]]:
    """By family; products of two matrices, and a family's blocks, are one of their own. catalogue:
    drafts of level 1; of some families each comes with an elementwise operation after it."""
    found: dict[str, list[Wider]] = {}
    grids = (_tensors(), _losses(), _products(), _convolutions(), _pools(), _activated(catalogue))
    for one in chain(*grids, map(Wider, blocks())):
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
    taps = prod(bare.operations[0]["kernel_size"])
    size = "most" if taps > MOST_TAPS else "many" if taps >= MANY_TAPS else "few"
    return f"{bare.family} of {size} taps"


def _place(one: Wider) -> bytes:
    return hashlib.sha256(one.draft.key.encode()).digest()


_RANKS = (2, 3, 4, 5)
_FACTORS = ((), (op("scale", scale_factor=0.5),), (op("divide", divisor=3.0),))


def _axes(rank: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, min(rank, 3) + 1):
        yield from combinations(range(rank), count)


def _tensors() -> Iterator[Wider]:
    """Functions of a tensor: more axes and ranks, some with a factor."""
    many = level_1.reductions
    before = [(), *((op("scale", scale_factor=f),) for f in (0.25, 0.5, 1.5, 2.0)),
              *((op("divide", divisor=d),) for d in (2.0, 4.0, 8.0))]  # fmt: skip
    widths = ((0, 1), (3, 1), (1, 0, 1, 0), (2, 1, 0, 1), (0, 3, 2, 0), (1, -1), (2, 3))
    norms = level_1.layer_norms(_RANKS, (1, 2, 3, 4), (1e-5, 1e-4, 0.01))
    grids: tuple[tuple[Iterable[ModuleDraft], int], ...] = (
        (many("sum_reduction", ("sum", "mean"), _axes, _RANKS), 3),
        (many("extremum_reduction", ("amax", "amin"), _axes, _RANKS), 3),
        (many("extremum_reduction", ("max", "min"), level_1.each_axis, _RANKS), 1),
        (many("arg_reduction", ("argmax", "argmin"), level_1.each_axis, _RANKS), 1),
        (many("logsumexp_reduction", ("logsumexp",), _axes, _RANKS), 3),
        *((many("moment_reduction", ("var", "std"), _axes, _RANKS[1:], unbiased=u), 3)
          for u in BOTH),
        *((many("norm_reduction", ("vector_norm",), _axes, _RANKS, p=p), 3)
          for p in (1.0, 2.0, 3.0, "inf")),
        (level_1.softmaxes(_RANKS, before), 2),
        (level_1.scans(_RANKS), 3),
        (chain(*map(level_1.orders, _RANKS[1:])), 1),
        (level_1.moves(_RANKS, _axes, (1, -1, 2, -2, 3, 5), range(-3, 4)), 1),
        (level_1.pads(widths, (0.0, -1.0, 0.5)), 1),
        (level_1.unit_norms(_RANKS), 3),
    )  # fmt: skip
    for drafts, factors in grids:
        yield from (Wider(draft, after) for draft in drafts for after in _FACTORS[:factors])
    for draft in norms:
        o = draft.operations[0]
        if o["axes"] != draft.rank - 2 or o["affine"]:  # an instance norm, which KernelBench has
            yield Wider(draft)


def _losses() -> Iterator[Wider]:
    """With a factor, and of what an activation gives."""
    rng = random.Random("wider losses")
    for draft in level_1.regression_losses():
        yield Wider(draft, before=(drawn(rng, rng.choice(ACTIVATIONS)),))
    for draft in chain(
        level_1.regression_losses(), level_1.classification_losses(), level_1.margin_losses()
    ):
        if draft.operations[0].name != "triplet_margin_loss":  # by its values KernelBench's own
            yield from (Wider(draft, after) for after in _FACTORS[1:])


def _products() -> Iterator[Wider]:
    rng = random.Random("wider products")
    steps = [drawn(rng, name) for name in (*ACTIVATIONS, *SCALARS)]
    for rank, ta, tb, first in product((2, 3, 4), (False, True), (False, True), steps):
        bare = level_1.product_draft(rank, ta, tb, first)
        yield Wider(bare)
        second = drawn(rng, rng.choice(ACTIVATIONS if first.name in SCALARS else SCALARS))
        if not redundant(first, second):
            yield Wider(bare, (second,))
        if rank == 2:
            yield Wider(bare, square=True)


_Each = tuple[int, ...]
"""A number for each axis."""


def _windows(
    rng: random.Random, n: int, transposed: bool = False, large: Sequence[tuple[int, int]] = (),
    count: int = MOST_WINDOWS,
) -> Iterator[tuple[_Each, _Each, _Each, _Each]]:  # fmt: skip
    """Kernel, stride, padding and dilation. large: kernels of two axes, in place of others."""
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
        *((n, "", (), MOST_WINDOWS) for n in (1, 2, 3)),
        (2, " many", many, MOST_WINDOWS), (2, " most", most, MOST_WINDOWS // 5),
    )  # fmt: skip
    for (n, kind, large, count), transposed in product(kinds, (False, True)):
        rng = random.Random(f"wider convolutions {n} {transposed}{kind}")
        for kernel, stride, padding, dilation in _windows(rng, n, transposed, large, count):
            o = conv_op(
                n, kernel, stride=stride, padding=padding, dilation=dilation,
                groups=rng.choice((1, 1, 1, 2, 4)), bias=rng.random() < 0.5, transposed=transposed,
                output_padding=rng.randint(0, min(stride) - 1) if transposed else 0,
            )  # fmt: skip
            yield Wider(conv_draft(f"{'transposed_' * transposed}convolution_{n}d", n, o))
    for n in (1, 2, 3):
        rng = random.Random(f"wider depthwise convolutions {n}")
        for kernel, stride, padding, dilation in _windows(rng, n):
            o = conv_op(n, kernel, stride=stride, padding=padding, dilation=dilation, groups=-1,
                        bias=rng.random() < 0.5)  # fmt: skip
            yield Wider(conv_draft("depthwise_convolution", n, o))


def _of_taps(least: int, most: int) -> list[tuple[int, int]]:
    """Kernels of two axes, mostly of unequal sides."""
    return [(a, b) for a in range(2, 12) for b in range(2, 12) if least <= a * b <= most]


def _by_axis(rng: random.Random, n: int, values: Sequence[int]) -> _Each:
    """The same for all of n axes, or one of its own for each."""
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
                o = pool_op("avg", *same, count_include_pad=rng.random() < 0.5)
                yield Wider(pool_draft("average_pooling", n, o))
            else:
                dilation, ceil = rng.choice((1, 1, 2)), rng.random() < 0.3
                o = pool_op("max", *same, dilation=dilation, ceil_mode=ceil)
                yield Wider(pool_draft("max_pooling", n, o))


def _activated(catalogue: Sequence[ModuleDraft]) -> Iterator[Wider]:
    for draft in (one for one in catalogue if one.family in _AFTER_LAYERS):
        rng = random.Random(f"wider {draft.key}")
        for name in rng.sample(ACTIVATIONS, 3):
            after = drawn(rng, name)
            if not redundant(draft.operations[-1], after):
                yield Wider(draft, (after,))

"""Graphs of one loop, one move of elements or none, with elementwise operations before and after
it: what modules are taken apart into (`data/parts`), also where no step of the grammar gives it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from coding_framework.data.graphs.draw import Draw, Dull
from coding_framework.data.graphs.nodes import ONE, Extent, Graph, Node
from coding_framework.data.graphs.singles.indices import (
    gathered,
    ids_of_column,
    of_booleans,
    outer,
    rows_of_each,
    unit,
)
from coding_framework.data.graphs.singles.loops import (
    batch_norm,
    convolved,
    cross_entropy,
    filtered,
    indexed,
    linear,
    log_sum_exp,
    parametric,
    picked,
    plain_layer_norm,
    pooled_image,
    product,
    reduced,
    soft,
    summed_up,
)
from coding_framework.data.graphs.singles.masks import (
    by_lengths,
    by_place,
    mask_of_lengths,
    of_squares,
    one_hot,
)
from coding_framework.data.graphs.singles.moves import (
    crossed,
    enlarged,
    flipped,
    gated,
    padded,
    repeated,
    rolled,
    shuffled,
)
from coding_framework.data.graphs.singles.sums import (
    added_at,
    attention,
    batch_statistics,
    by_count,
    einsum,
    equal_pairs,
    instance_norm,
    mean_loss,
    picked_of_axis,
    spread,
    windows,
)
from coding_framework.data.graphs.singles.typed import compared, made_whole, of_whole_numbers
from coding_framework.data.graphs.singles.values import (
    chain,
    new_input,
    of_integers,
    pairwise_loss,
    truncated,
    with_given_number,
)

_TRIES = 30


_SHAPES = [
    "n",
    "nd",
    "nd",
    "nd",
    "td",
    "ntd",
    "ntd",
    "ntd",
    "nct",
    "nts",
    "ntt",
    "nchw",
    "nchw",
    "tt",
    "tt",
    "nktd",
    "nktt",
    "nkts",
    "nthw",
    "nkehw",
    "nkehw",
    "nckhw",
    "nckhw",
    "1",
    "",
]
"""Axes of the tensor that a graph begins with; some more often than others."""


_ALIKE = 0.2
"""How often a length is, where it is shown, another axis's too."""


_SIZES = {
    "n": ((4, 3, 2, 5, 2), (2, 4, 8, 16, 32, 64, 128, 512)),
    "t": ((12, 20, 4, 132, 4), (50, 96, 100, 128, 200, 256, 336, 512, 1024)),
    "s": ((16, 9, 6, 77, 6), (18, 64, 77, 128, 321)),
    "d": ((48, 72, 24, 264, 24), (64, 72, 80, 128, 200, 256, 320, 384, 512, 768)),
    "k": ((3, 4, 2, 6, 2), (4, 8, 12, 16)),
    "c": ((24, 12, 8, 60, 8), (16, 32, 64, 96, 128, 192)),
    "h": ((8, 12, 4, 20, 4), (14, 24, 28, 32, 56, 64)),
    "e": ((5, 6, 3, 10, 3), (12, 16, 24, 32)),
    "w": ((12, 8, 6, 36, 6), (16, 24, 28, 32, 56, 64)),
}
"""By name: of the emulator's three cases and a GPU's last two; of the GPU's first one."""


def draw_single(number: int) -> Graph | None:
    """The graph of that number; None where nothing came of it."""
    return _drawn("single", number, _MIDDLES)


def draw_typed(number: int) -> Graph | None:
    """The same of what gives no floats."""
    return _drawn("typed", number, _TYPED)


def _drawn(kind: str, number: int, among: _Weighed) -> Graph | None:
    rng = random.Random(f"{kind} {number}")
    middles, weights = zip(*among, strict=True)
    middle = rng.choices(middles, weights)[0]
    for _ in range(_TRIES):
        d = Draw.blank(rng)
        _start(d)
        before, after = rng.choice(((0, 0), (0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (1, 1), (3, 0)))
        if middle is chain:
            before, after = rng.choice((0, 1, 2, 3, 4)), 0
        elif among is _TYPED:
            before, after = 0, 0
        elif middle not in _BEHIND_OTHERS:
            before = 0
        try:
            for step in (*[chain] * before, middle, *[chain] * after):
                if not d.h.dims and step not in _OF_NO_AXES:
                    raise Dull
                d.h = step(d)
        except Dull:
            continue
        used = {id(n) for n in d.h.walk()}
        if all(id(g) in used for g in d.inputs):
            return d.graph(f"{kind}_{number}")
    return None


def _start(d: Draw) -> None:
    """A tensor of at most five axes."""
    rng = d.rng
    dims = rng.choice(_SHAPES)
    d.images = dims.endswith("hw") and len(dims) == 4
    for name in dict.fromkeys(dims.replace("1", "")):
        small, real = _SIZES[name]
        own = rng.choice(real)
        if d.sizes and rng.random() < _ALIKE:
            own = rng.choice([*d.sizes.values()]).values[3]
        d.size(name, name, (*small[:3], own, *small[3:]))
    axes = [ONE if name == "1" else Extent.of(name) for name in dims]
    rank = len(axes)
    if rank > 2 and rng.random() < (0.1 if rank < 5 else 0.4):
        axes[rng.randrange(rank)] = ONE
    d.axes = tuple(axes)
    if rank > 1 and rng.random() < 0.08:
        for axis in rng.sample(range(rank), rng.randrange(1, rank)):
            axes[axis] = ONE
    low = 0.1 if rng.random() < 0.12 else None
    d.h = d.x = new_input(d, tuple(axes), low=low)


_Weighed = tuple[tuple[Callable[[Draw], Node], int], ...]
_MIDDLES: _Weighed = (
    (chain, 34),
    (reduced, 14),
    (log_sum_exp, 2),
    (soft, 7),
    (linear, 9),
    (product, 6),
    (plain_layer_norm, 4),
    (pooled_image, 3),
    (summed_up, 4),
    (picked, 6),
    (batch_norm, 6),
    (convolved, 10),
    (crossed, 2),
    (cross_entropy, 3),
    (parametric, 3),
    (rolled, 5),
    (flipped, 2),
    (repeated, 5),
    (padded, 4),
    (gated, 3),
    (shuffled, 4),
    (enlarged, 2),
    (by_lengths, 7),
    (mask_of_lengths, 4),
    (indexed, 4),
    (of_integers, 3),
    (of_squares, 8),
    (by_place, 5),
    (one_hot, 3),
    (pairwise_loss, 4),
    (with_given_number, 12),
    (truncated, 6),
    (einsum, 10),
    (added_at, 9),
    (batch_statistics, 6),
    (spread, 7),
    (windows, 5),
    (mean_loss, 4),
    (by_count, 3),
    (picked_of_axis, 3),
    (equal_pairs, 5),
    (instance_norm, 3),
    (attention, 4),
    (of_booleans, 14),
    (gathered, 8),
    (rows_of_each, 5),
    (ids_of_column, 3),
    (outer, 6),
    (unit, 4),
    (filtered, 8),
)
"""What stands in the middle, and how often it is drawn."""


_BEHIND_OTHERS = (reduced, log_sum_exp, soft, summed_up, spread, with_given_number, truncated)
"""Those that are in one part with elementwise operations before them."""


_TYPED: _Weighed = (
    (compared, 8),
    (made_whole, 2),
    (of_whole_numbers, 7),
)
_OF_NO_AXES = (chain, with_given_number, truncated, by_count)
"""Those that a tensor of one number may have."""

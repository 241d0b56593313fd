"""Other sizes of module tasks.

A policy that SFT shows a family at one size takes the size for the family. One that solved 88% of
held-out operations at the catalogue's sizes reduced, in KernelBench's level 1, whose sizes are
others, a second axis as if it were the first, and read three axes as two.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import replace

from coding_framework.data.modules.records import ModuleDraft, Sizes

LEAST_ELEMENTS, MOST_ELEMENTS = 1 << 18, 1 << 28
"""Of all inputs together at a GPU's main sizes; what is made of them may have as many."""
_MOST_OF_LAYERS = 1 << 25
"""The same before a layer with channels out."""
_OUTS = ("out_channels", "hidden_channels")
_OUT_FEATURES = ("out_features", "hidden_features")
_FOLD = 3.0
"""Binary logarithm of the most by which a size grows or shrinks."""
_TRIES = 50
_TILE = 32
"""A size that fills a tile of tensor cores goes on to."""
_BINARY = tuple(m * 2**n for m, most in ((1, 28), (3, 26)) for n in range(1, most))
_DECIMAL = tuple(n / 2 for n in range(2, 21))
"""Numbers that people write: powers of two and three of them, and digits before zeros."""
_GROWING = frozenset({"resampling", "embedding"})
"""Families whose results are much larger than their inputs: they stay as they are."""


def drawn_place(key: str, count: int) -> int:
    """One of so many places, by the key alone."""
    return zlib.crc32(key.encode()) % count


def at_other_sizes(draft: ModuleDraft, number: int = 0) -> ModuleDraft:
    """The same function, by name and key, at other main sizes of a GPU; the emulator's sizes and
    the ragged ones stay. number: of several such drafts. What sizes have in common (groups that
    divide channels) they keep. The draft itself where no such sizes are found."""
    if draft.family in _GROWING:
        return draft
    rng = random.Random(f"other sizes:{draft.name}/{number}")
    main = draft.gpu_sizes[0]
    known = (*draft.sizes, *draft.gpu_sizes)
    steps = {name: math.gcd(*(sizes[name] for sizes in known)) for name in main}
    least = {
        name: max(min(sizes[name] for sizes in known), min(_TILE, value))
        for name, value in main.items()
    }
    most = MOST_ELEMENTS if main.keys().isdisjoint(_OUTS) else _MOST_OF_LAYERS
    for _ in range(_TRIES):
        sizes = {n: _drawn(rng, v, steps[n], least[n]) for n, v in main.items()}
        count = sum(math.prod(given.shape(sizes)) for given in draft.inputs)
        fits = count <= most and _made(draft, sizes, count) <= MOST_ELEMENTS
        if sizes != main and count >= LEAST_ELEMENTS and fits:
            return replace(draft, gpu_sizes=(sizes, *draft.gpu_sizes[1:]))
    return draft


def _made(draft: ModuleDraft, sizes: Sizes, count: int) -> float:
    """Elements of what the first operation makes of so many, or a later layer at its size."""
    if sizes.keys() >= {"M", "K", "N"}:
        return math.prod(sizes.values()) / sizes["K"]
    features = [sizes[name] for name in _OUT_FEATURES if name in sizes]
    if "in_features" in sizes and features:
        return count * max(features) / sizes["in_features"]
    channels = [sizes[name] for name in _OUTS if name in sizes]
    if not channels:
        return count
    head, wider = draft.operations[0], count * max(channels) / sizes["in_channels"]
    stride: tuple[int, ...] = head["stride"] if "transpose" in head.name else ()
    return wider * math.prod(stride)


def _drawn(rng: random.Random, value: int, step: int, least: int) -> int:
    """A size near another one, as people write it: a power of two or three of them, a number of the
    decimal system, or any."""
    low, high = math.log2(max(least, value / 2**_FOLD)), math.log2(value) + _FOLD
    drawn = 2 ** rng.uniform(low, high)
    kind = rng.random()
    if kind < 0.5:
        drawn = _nearest(drawn, _BINARY)
    elif kind < 0.7:
        scale = 10 ** max(0, int(math.log10(drawn)))
        drawn = scale * _nearest(drawn / scale, _DECIMAL)
    return max(-(-least // step), round(drawn / step)) * step


def _nearest(value: float, of: Sequence[float]) -> float:
    return min(of, key=lambda one: abs(math.log(one / value)))

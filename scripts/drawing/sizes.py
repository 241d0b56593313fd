"""The sizes of drawn modules: small ones for the emulator, real ones for a GPU.

Main sizes are round, odd ones no multiples of a block or a vector, tiny ones smaller than a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coding_framework.data.modules.records import Operation, Sizes, ThreeSizes
from coding_framework.data.modules.sizes import drawn_place

AllSizes = tuple[ThreeSizes, ThreeSizes]
"""(of the emulator, of a GPU)."""

AXES: dict[int, tuple[str, ...]] = {
    1: ("features",),
    2: ("batch_size", "features"),
    3: ("batch_size", "length", "features"),
    4: ("batch_size", "channels", "height", "width"),
    5: ("batch_size", "channels", "depth", "height", "width"),
}
"""What the axes of a tensor without a layer's channels are called, by rank."""
SPATIAL: dict[int, tuple[str, ...]] = {
    1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width"),
}  # fmt: skip

_SMALL: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((300,), (77,), (5,)),
    2: ((16, 96), (7, 61), (3, 5)),
    3: ((3, 20, 36), (5, 7, 33), (2, 3, 4)),
    4: ((2, 8, 9, 12), (3, 4, 7, 11), (2, 4, 4, 5)),
    5: ((2, 8, 4, 6, 6), (3, 4, 3, 5, 7), (2, 4, 2, 3, 4)),
}
_Real = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
_REAL: dict[int, _Real] = {
    1: (((1 << 24,), ((1 << 23) - 7,)),),
    2: (((4096, 4096), (1021, 2047)), ((16384, 1024), (777, 4099)), ((1024, 16384), (333, 8191))),
    3: (((64, 512, 512), (17, 321, 257)), ((32, 1024, 768), (7, 511, 383))),
    4: (((16, 64, 128, 128), (5, 36, 61, 47)), ((32, 128, 56, 56), (7, 20, 57, 55))),
    5: (((8, 32, 32, 32, 32), (3, 12, 17, 19, 23)), ((4, 64, 16, 48, 48), (3, 20, 9, 31, 29))),
}
_REAL_CONV: dict[int, _Real] = {
    1: (
        ((16, 64, 128, 4096), (5, 37, 61, 2047)),
        ((32, 128, 128, 1024), (7, 29, 67, 1531)),
        ((8, 32, 64, 16384), (3, 19, 45, 8191)),
    ),
    2: (
        ((16, 64, 128, 64, 64), (5, 37, 61, 47, 61)),
        ((32, 32, 64, 56, 56), (7, 29, 45, 33, 51)),
        ((8, 16, 64, 128, 128), (3, 13, 35, 97, 83)),
    ),
    3: (
        ((8, 16, 32, 16, 32, 32), (3, 11, 21, 9, 17, 23)),
        ((4, 32, 32, 16, 16, 16), (3, 7, 29, 13, 11, 15)),
        ((4, 8, 32, 16, 48, 48), (3, 5, 19, 7, 29, 31)),
    ),
}
"""Main and odd: batch, channels in and out, extents of the spatial axes."""


def rows_of(names: Sequence[str], rows: Iterable[Sequence[int]]) -> AllSizes:
    """Of main, odd and tiny ones of the emulator, main and odd ones of a GPU."""
    main, odd, tiny, large, ragged = (dict(zip(names, row, strict=True)) for row in rows)
    return (main, odd, tiny), (large, ragged, tiny)


def sizes_of(**named: Sequence[int]) -> AllSizes:
    """The same, by name."""
    return rows_of([*named], zip(*named.values(), strict=True))


def five(sizes: AllSizes) -> list[Sizes]:
    """The inverse of `rows_of`, each by name."""
    return [*sizes[0], *sizes[1][:2]]


def with_sizes(sizes: AllSizes, **more: Sequence[int]) -> AllSizes:
    """The sizes and further ones, or others of that name."""
    known = five(sizes)
    return sizes_of(**{**{name: [one[name] for one in known] for name in known[0]}, **more})


def plain_sizes(rank: int, key: str) -> AllSizes:
    """Of a tensor of that rank."""
    real = _REAL[rank][drawn_place(key, len(_REAL[rank]))]
    return rows_of(AXES[rank], (*_SMALL[rank], *real))


def conv_sizes(head: Operation, n: int, key: str, multiple: int = 1, need: int = 4) -> AllSizes:
    """Of a convolution: channels are multiples of its groups or of `multiple`, whichever are more,
    and the tiniest output has at least `need` places along each axis."""
    step = max(1, multiple, head["groups"])
    least = [_input_extent(head, axis, need) for axis in range(n)]
    more = (5, 2, 0) if n < 3 else (2, 1, 0)
    small = [
        (*row, *(extent + wider for extent in least))
        for row, wider in zip(((2, 8, 12), (3, 5, 7), (2, 3, 2)), more, strict=True)
    ]
    real = [
        (*row[:3], *map(max, row[3:], least))
        for row in _REAL_CONV[n][drawn_place(key, len(_REAL_CONV[n]))]
    ]
    return rows_of(
        ("batch_size", "in_channels", "out_channels", *SPATIAL[n]),
        [
            (batch, -(-channels // step) * step, -(-out // step) * step, *extents)
            for batch, channels, out, *extents in (*small, *real)
        ],
    )


def _input_extent(head: Operation, axis: int, need: int) -> int:
    """The least extent of the input for `need` places of the output."""
    names = ("kernel_size", "stride", "padding", "dilation")
    k, s, p, d = (int(head[name][axis]) for name in names)
    window = d * (k - 1) + 1
    if head.name.startswith("conv_transpose"):
        return max(2, -(-(need + 2 * p - window) // s) + 1)
    return max(2, window + (need - 1) * s - 2 * p, p + 1)

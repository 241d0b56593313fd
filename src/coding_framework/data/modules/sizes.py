"""The sizes of module tasks: small ones for the emulator, real ones for a GPU.

Main sizes are round, odd ones no multiples of a block or a vector, tiny ones smaller than a block.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from coding_framework.data.modules.records import ModuleInput, Operation, Sizes

ThreeSizes = tuple[Sizes, Sizes, Sizes]

AXES: dict[int, tuple[str, ...]] = {
    1: ("features",),
    2: ("batch_size", "features"),
    3: ("batch_size", "length", "features"),
    4: ("batch_size", "channels", "height", "width"),
    5: ("batch_size", "channels", "depth", "height", "width"),
}
"""What the axes of a tensor without a layer's channels are called, by rank."""
SPATIAL: dict[int, tuple[str, ...]] = {
    1: ("length",),
    2: ("height", "width"),
    3: ("depth", "height", "width"),
}

_SMALL: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((300,), (77,), (5,)),
    2: ((16, 96), (7, 61), (3, 5)),
    3: ((3, 20, 36), (5, 7, 33), (2, 3, 4)),
    4: ((2, 8, 9, 12), (3, 4, 7, 11), (2, 4, 4, 5)),
    5: ((2, 8, 4, 6, 6), (3, 4, 3, 5, 7), (2, 4, 2, 3, 4)),
}
_REAL: dict[int, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = {
    1: (((1 << 24,), ((1 << 23) - 7,)),),
    2: (((4096, 4096), (1021, 2047)), ((16384, 1024), (777, 4099)), ((1024, 16384), (333, 8191))),
    3: (((64, 512, 512), (17, 321, 257)), ((32, 1024, 768), (7, 511, 383))),
    4: (((16, 64, 128, 128), (5, 36, 61, 47)), ((32, 128, 56, 56), (7, 20, 57, 55))),
    5: (((8, 32, 32, 32, 32), (3, 12, 17, 19, 23)), ((4, 64, 16, 48, 48), (3, 20, 9, 31, 29))),
}


def tensor(
    name: str, rank: int, low: float | None = None, high: float | None = None
) -> ModuleInput:
    """An input whose axes have the usual names."""
    return ModuleInput(name, AXES[rank], low=low, high=high)


def plain_sizes(rank: int, key: str) -> tuple[ThreeSizes, ThreeSizes]:
    """Of a tensor of that rank: (of the emulator, of a GPU)."""
    main, odd, tiny = (dict(zip(AXES[rank], s, strict=True)) for s in _SMALL[rank])
    real = _REAL[rank][drawn_place(key, len(_REAL[rank]))]
    large, ragged = (dict(zip(AXES[rank], s, strict=True)) for s in real)
    return (main, odd, tiny), (large, ragged, tiny)


def with_sizes(
    sizes: tuple[ThreeSizes, ThreeSizes], **more: tuple[int, ...]
) -> tuple[ThreeSizes, ThreeSizes]:
    """The sizes and further ones: main, odd and tiny of the emulator, main and odd of a GPU."""
    (main, odd, tiny), (large, ragged, _) = sizes
    five = [
        {**old, **{name: values[i] for name, values in more.items()}}
        for i, old in enumerate((main, odd, tiny, large, ragged))
    ]
    return (five[0], five[1], five[2]), (five[3], five[4], five[2])


@dataclass(frozen=True, slots=True)
class _Real:
    batch: int
    channels: int
    out: int
    extents: tuple[int, ...]


_REAL_CONV: dict[int, tuple[tuple[_Real, _Real], ...]] = {
    1: (
        (_Real(16, 64, 128, (4096,)), _Real(5, 37, 61, (2047,))),
        (_Real(32, 128, 128, (1024,)), _Real(7, 29, 67, (1531,))),
        (_Real(8, 32, 64, (16384,)), _Real(3, 19, 45, (8191,))),
    ),
    2: (
        (_Real(16, 64, 128, (64, 64)), _Real(5, 37, 61, (47, 61))),
        (_Real(32, 32, 64, (56, 56)), _Real(7, 29, 45, (33, 51))),
        (_Real(8, 16, 64, (128, 128)), _Real(3, 13, 35, (97, 83))),
    ),
    3: (
        (_Real(8, 16, 32, (16, 32, 32)), _Real(3, 11, 21, (9, 17, 23))),
        (_Real(4, 32, 32, (16, 16, 16)), _Real(3, 7, 29, (13, 11, 15))),
        (_Real(4, 8, 32, (16, 48, 48)), _Real(3, 5, 19, (7, 29, 31))),
    ),
}


def conv_sizes(
    head: Operation, n: int, key: str, multiple: int = 1, need: int = 4
) -> tuple[ThreeSizes, ThreeSizes]:
    """Of a convolution: channels are multiples of its groups and of `multiple`, and the tiniest
    output has at least `need` places along each axis."""
    groups = max(1, head.number("groups"))
    a, b = max(multiple, groups) if groups % multiple else groups, max(multiple, groups)
    step = a * b // _common(a, b)
    least = tuple(_input_extent(head, i, need) for i in range(n))
    small = []
    batches, channels, outs = (2, 3, 2), (8, 5, 3), (12, 7, 2)
    more = (5, 2, 0) if n < 3 else (2, 1, 0)
    for i in range(3):
        extents = tuple(e + more[i] for e in least)
        small.append(_conv(n, batches[i], _up(channels[i], step), _up(outs[i], step), extents))
    real = []
    for r in _REAL_CONV[n][drawn_place(key, len(_REAL_CONV[n]))]:
        extents = tuple(max(e, small) for e, small in zip(r.extents, least, strict=True))
        real.append(_conv(n, r.batch, _up(r.channels, step), _up(r.out, step), extents))
    return (small[0], small[1], small[2]), (real[0], real[1], small[2])


def _conv(n: int, batch: int, channels: int, out: int, extents: tuple[int, ...]) -> Sizes:
    spatial = dict(zip(SPATIAL[n], extents, strict=True))
    return {"batch_size": batch, "in_channels": channels, "out_channels": out, **spatial}


def _input_extent(head: Operation, axis: int, need: int) -> int:
    """The least extent of the input for `need` places of the output."""
    k, s = head.integers("kernel_size")[axis], head.integers("stride")[axis]
    p, d = head.integers("padding")[axis], head.integers("dilation")[axis]
    window = d * (k - 1) + 1
    if head.name.startswith("conv_transpose"):
        return max(2, -(-(need + 2 * p - window) // s) + 1)
    return max(2, window + (need - 1) * s - 2 * p, p + 1)


def _up(value: int, step: int) -> int:
    """The nearest multiple that is not smaller."""
    return -(-value // step) * step


def _common(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def drawn_place(key: str, count: int) -> int:
    """One of so many places, by the key alone."""
    return zlib.crc32(key.encode()) % count

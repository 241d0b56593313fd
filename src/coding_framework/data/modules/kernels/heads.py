"""What the writers of products and convolutions have in common: the extents that a task gives them,
and where they have nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from coding_framework.data.modules.kernels.lowering import Lowering
from coding_framework.data.modules.kernels.naive_layers import conv_extents
from coding_framework.data.modules.records import Operation, extent

MULTIPROCESSORS = 132
_LEAST = 32
"""Rows, columns and inner indices of a product below which a tile is mostly empty."""


class NotHereError(Exception):
    """The templates have nothing for this operation as it stands."""


@dataclass(frozen=True, slots=True)
class Factors:
    """A product of two tensors of the task: C expressions of its extents, and how each lies."""

    other: str
    """The right factor's name."""
    batch: Sequence[str]
    m: str
    k: str
    n: str
    x_inner_first: bool
    u_inner_first: bool

    @property
    def dims(self) -> list[str]:
        return [*self.batch, self.m, self.n]

    @property
    def sizes(self) -> dict[str, str]:
        """C name in the kernel -> expression on the host."""
        return {"m": self.m, "n": self.n, "k": self.k}


def factors(w: Lowering, o: Operation) -> Factors:
    """Raises NotHereError where the factors are not two inputs of the same rank."""
    if o.flag("own") or w.x.host != w.task.inputs[0].name:
        raise NotHereError
    other = w.task.inputs[-1] if o.name == "matmul_last" else w.task.inputs[1]
    given = [w.variable(d) for d in other.dims]
    if len(given) != len(w.dims):
        raise NotHereError
    ta, tb = o.flag("ta"), o.flag("tb")
    *batch, rows, columns = w.dims
    m, k = (columns, rows) if ta else (rows, columns)
    return Factors(other.name, batch, m, k, given[-2] if tb else given[-1], not ta, tb)


@dataclass(frozen=True, slots=True)
class Channels:
    """A convolution's extents, as C expressions."""

    batch: str
    each_in: str
    """Channels in of a group."""
    each_out: str
    out: str
    """Channels out of all groups."""
    spatial: Sequence[str]
    outs: Sequence[str]
    """The result's extents along the spatial axes."""
    groups: int
    taps: int
    transposed: bool

    @property
    def dims(self) -> list[str]:
        return [self.batch, self.out, *self.outs]


def channels(w: Lowering, o: Operation) -> Channels:
    """Raises NotHereError for depthwise convolutions."""
    groups = o.number("groups")
    if groups < 1:
        raise NotHereError
    batch, c, *spatial = w.dims
    out = w.variable(str(o["out"]))
    each_in, each_out = (d if groups == 1 else f"{d} / {groups}" for d in (c, out))
    return Channels(
        batch, each_in, each_out, out, spatial, conv_extents(w, o), groups,
        prod(o.integers("kernel_size")), o.name.startswith("conv_transpose"),
    )  # fmt: skip


def tiled(w: Lowering, *sizes: str) -> list[int]:
    """Extents at a GPU's main sizes. Raises NotHereError where tiles of one would be mostly
    empty."""
    found = [extent(size, w.main_values) for size in sizes]
    if min(found) < _LEAST:
        raise NotHereError
    return found


CONVOLUTIONS = tuple(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))
PRODUCTS = ("matmul", "bmm", "matmul_last")

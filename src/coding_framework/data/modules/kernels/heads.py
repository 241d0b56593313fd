"""What the writers of products and convolutions have in common: the extents that a task gives them,
and where they have nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from coding_framework.data.modules.kernels.lowering import Lowering
from coding_framework.data.modules.kernels.naive_layers import conv_extents
from coding_framework.data.modules.pointwise import c_literal
from coding_framework.data.modules.records import Operation, extent

MULTIPROCESSORS = 132
_LEAST = 32
"""Rows, columns and inner indices of a product below which a tile is mostly empty."""


class NotHereError(Exception):
    """The templates have nothing for this operation as it stands."""


@dataclass(frozen=True, slots=True)
class Factors:
    """A product of two tensors of the task: C expressions of its extents, and how each lies."""

    left: str
    right: str
    """The factors' names on the host."""
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
    """The tensor in hand times an input, or two inputs (`addmm`). Raises NotHereError where they
    are not of the same rank, or where the tensor in hand is not an input but for `matmul_last`."""
    inputs = w.task.inputs
    if o.name != "matmul_last" and w.x.host != inputs[0].name:
        raise NotHereError
    left, dims = w.x.host, w.dims
    right = inputs[0 if o.flag("own") else -1 if o.name == "matmul_last" else 1]
    if o.name == "addmm":
        left, dims, right = inputs[1].name, [w.variable(d) for d in inputs[1].dims], inputs[2]
    given = [w.variable(d) for d in right.dims]
    if len(given) != len(dims):
        raise NotHereError
    ta, tb = o.flag("ta"), o.flag("tb")
    *batch, rows, columns = dims
    m, k = (columns, rows) if ta else (rows, columns)
    return Factors(left, right.name, batch, m, k, given[-2] if tb else given[-1], not ta, tb)


def scaled_sum(o: Operation, value: str, term: str) -> list[str]:
    """What `addmm` does with a product's value and the element that it is added to; nothing for
    other operations."""
    if o.name != "addmm":
        return []
    beta, alpha = (c_literal(o[name]) for name in ("beta", "alpha"))
    return [f"{value} = {beta} * {term} + {alpha} * {value};"]


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
PRODUCTS = ("matmul", "bmm", "matmul_last", "addmm")

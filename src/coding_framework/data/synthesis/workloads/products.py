"""Workloads made of matrix products: batched, transposed, gated."""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    FLOATS,
    Sizes,
    WorkloadOp,
    weight,
    within,
)

_BATCHED = Sizes(
    "bnkm",
    ((2, 64, 48, 40), (3, 33, 29, 35), (1, 3, 5, 4)),
    ((16, 1024, 1024, 1024), (5, 511, 1021, 509), (1, 3, 5, 4)),
)
"""Products, rows, inner extent, columns."""
_ONE = Sizes(
    "nkm",
    ((96, 128, 64), (67, 75, 45), (3, 5, 4)),
    ((4096, 4096, 4096), (1021, 2043, 1019), (3, 5, 4)),
)


def _product(v: Interval) -> Interval:
    largest = max(abs(v.low), abs(v.high))
    return Interval(-8192 * largest, 8192 * largest, -4 * largest, 4 * largest)


_batched = partial(WorkloadOp, sizes=_BATCHED, x="b n k", terms="k", interval=_product)
BATCHED_MATMUL = (
    _batched("bmm", "torch.bmm(x, u)", "({v}) @ u for each matrix of the batch",
             others=(weight("u", "b k m"),), dtypes=FLOATS),
    _batched("bmmnt", "torch.bmm(x, u.transpose(1, 2))",
             "({v}) @ u^T for each matrix of the batch", others=(weight("u", "b m k"),)),
    _batched("bmmshared", "x @ u", "({v}) @ u, the same u for each matrix of the batch",
             others=(weight("u", "k m"),), atoms=("matmul",)),
)  # fmt: skip
_single = partial(WorkloadOp, sizes=_ONE, terms="k", interval=_product)
MATMUL_TRANSPOSED = (
    _single("matmulnt", "x @ u.t()", "({v}) @ u^T", others=(weight("u", "m k"),), x="n k",
            dtypes=FLOATS, atoms=("matmul",)),
    _single("matmultn", "x.t() @ u", "({v})^T @ u", others=(weight("u", "k m"),), x="k n",
            dtypes=FLOATS),
    _single("matmulhalf", "x @ u", "({v}) @ u", others=(weight("u", "k m"),), x="n k",
            dtypes=FLOATS[1:], atoms=("matmul",)),
)  # fmt: skip


def _gated(name: str, gate: str) -> WorkloadOp:
    return WorkloadOp(
        name, f"{gate} * (x @ g)", f"{name}: gate(({{v}}) @ u) * (({{v}}) @ g)",
        Sizes("nkm", _ONE.emulator, ((2048, 2048, 4096), *_ONE.gpu[1:])),
        (weight("u", "k m"), weight("g", "k m")), x="n k", terms="k",
        interval=within(-1e5, 1e5, -20.0, 20.0),
    )  # fmt: skip


GATED_LINEAR = (
    _gated("swiglu", "F.silu(x @ u)"),
    _gated("geglu", "F.gelu(x @ u)"),
    _gated("reglu", "torch.relu(x @ u)"),
    _gated("sigglu", "torch.sigmoid(x @ u)"),
    _gated("bilinear", "(x @ u)"),
)

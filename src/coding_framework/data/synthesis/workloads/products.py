"""Workloads made of matrix products: batched, transposed, gated, attention."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    WorkloadOp,
    within,
)
from coding_framework.types import DType

_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")


_MAIN: tuple[Size, Size, Size] = ((2, 64, 48, 40), (3, 33, 29, 35), (1, 3, 5, 4))
_GPU: tuple[Size, Size, Size] = ((16, 1024, 1024, 1024), (5, 511, 1021, 509), (1, 3, 5, 4))
"""Products, rows, inner extent, columns."""
_MAIN_ONE: tuple[Size, Size, Size] = ((1, 96, 128, 64), (1, 67, 75, 45), (1, 3, 5, 4))
_GPU_ONE: tuple[Size, Size, Size] = ((1, 4096, 4096, 4096), (1, 1021, 2043, 1019), (1, 3, 5, 4))


def _product_interval(v: Interval) -> Interval:
    largest = max(abs(v.low), abs(v.high))
    return Interval(-8192 * largest, 8192 * largest, -4 * largest, 4 * largest)


def _op(
    name: str,
    torch: str,
    spoken: str,
    inputs: Callable[[Params, Size], tuple[Given, ...]],
    *,
    single: bool = False,
    dtypes: tuple[DType, ...] = ("float32",),
    atoms: tuple[str, ...] | None = None,
) -> WorkloadOp:
    inner = 0 if name == "matmultn" else -1

    def terms(params: Params, shapes: Shapes) -> int:
        return shapes[0][inner]

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        sizes=_MAIN_ONE if single else _MAIN,
        gpu_sizes=_GPU_ONE if single else _GPU,
        interval=_product_interval,
        dtypes=dtypes,
        terms=terms,
        atoms=atoms,
    )


def _matrix(name: str, *shape: int) -> Given:
    return Given(name, shape, low=-1.0, high=1.0)


BATCHED_MATMUL = (
    _op(
        "bmm",
        "torch.bmm(x, u)",
        "({v}) @ u for each matrix of the batch",
        lambda params, size: (
            Given("x", (size[0], size[1], size[2])),
            _matrix("u", size[0], size[2], size[3]),
        ),
        dtypes=_FLOATS,
    ),
    _op(
        "bmmnt",
        "torch.bmm(x, u.transpose(1, 2))",
        "({v}) @ u^T for each matrix of the batch",
        lambda params, size: (
            Given("x", (size[0], size[1], size[2])),
            _matrix("u", size[0], size[3], size[2]),
        ),
    ),
    _op(
        "bmmshared",
        "x @ u",
        "({v}) @ u, the same u for each matrix of the batch",
        lambda params, size: (
            Given("x", (size[0], size[1], size[2])),
            _matrix("u", size[2], size[3]),
        ),
        atoms=("matmul",),
    ),
)
MATMUL_TRANSPOSED = (
    _op(
        "matmulnt",
        "x @ u.t()",
        "({v}) @ u^T",
        lambda params, size: (Given("x", (size[1], size[2])), _matrix("u", size[3], size[2])),
        single=True,
        dtypes=_FLOATS,
        atoms=("matmul",),
    ),
    _op(
        "matmultn",
        "x.t() @ u",
        "({v})^T @ u",
        lambda params, size: (Given("x", (size[2], size[1])), _matrix("u", size[2], size[3])),
        single=True,
        dtypes=_FLOATS,
    ),
    _op(
        "matmulhalf",
        "x @ u",
        "({v}) @ u",
        lambda params, size: (Given("x", (size[1], size[2])), _matrix("u", size[2], size[3])),
        single=True,
        dtypes=_FLOATS[1:],
        atoms=("matmul",),
    ),
)

# --- gated products ------------------------------------------------------------------------------


def _gated_op(name: str, torch: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (
            Given("x", (size[1], size[2])),
            _matrix("u", size[2], size[3]),
            _matrix("g", size[2], size[3]),
        ),
        torch=(f"{torch} * (x @ g)",),
        spoken=f"{name}: gate(({{v}}) @ u) * (({{v}}) @ g)",
        sizes=_MAIN_ONE,
        gpu_sizes=((1, 2048, 2048, 4096), *_GPU_ONE[1:]),
        interval=within(-1e5, 1e5, -20.0, 20.0),
        terms=lambda params, shapes: shapes[0][1],
        dtypes=_FLOATS[:1],
    )


GATED_LINEAR = (
    _gated_op("swiglu", "F.silu(x @ u)"),
    _gated_op("geglu", "F.gelu(x @ u)"),
    _gated_op("reglu", "torch.relu(x @ u)"),
    _gated_op("sigglu", "torch.sigmoid(x @ u)"),
    _gated_op("bilinear", "(x @ u)"),
)

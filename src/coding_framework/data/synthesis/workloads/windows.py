"""Workloads over windows: pooling.

Padding is half the window, so that an odd window at stride 1 keeps the extent.
"""

from __future__ import annotations

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Shapes,
    Size,
    WorkloadOp,
    same,
)

# --- pooling -------------------------------------------------------------------------------------

_POOL_1D: tuple[Size, Size, Size] = ((4, 32, 256), (3, 17, 131), (1, 3, 9))
_GPU_POOL_1D: tuple[Size, Size, Size] = ((64, 512, 2048), (33, 127, 2041), (1, 3, 9))
_POOL_2D: tuple[Size, Size, Size] = ((2, 8, 48, 48), (3, 5, 31, 37), (1, 2, 6, 7))
_GPU_POOL_2D: tuple[Size, Size, Size] = ((32, 64, 256, 256), (5, 37, 251, 253), (1, 2, 6, 7))
_WINDOWS: tuple[Params, ...] = ((2, 2), (3, 1), (3, 2), (4, 4), (5, 1), (5, 2))


def _fits(params: Params) -> bool:
    window, stride = params
    return 2 <= window <= 5 and 1 <= stride <= window


def _pool_op(name: str, torch: str, spoken: str, *, flat: bool) -> WorkloadOp:
    def terms(params: Params, shapes: Shapes) -> int:
        return 1 if name.startswith("max") else int(params[0] ** (1 if flat else 2))

    def norm(v: Interval) -> Interval:
        top = max(abs(v.low), abs(v.high))
        usual = max(abs(v.typical_low), abs(v.typical_high))
        return Interval(0.0, 5 * top, 0.5 * usual, 3 * usual)

    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size),),
        torch=(torch,),
        spoken=spoken,
        sizes=_POOL_1D if flat else _POOL_2D,
        gpu_sizes=_GPU_POOL_1D if flat else _GPU_POOL_2D,
        interval=norm if name.startswith("norm") else same,
        letters="ks",
        choices=_WINDOWS,
        terms=terms,
        check=_fits,
    )


POOL_1D = (
    _pool_op("maxpool1d", "F.max_pool1d(x, {k}, {s}, {k} // 2)", "maxpool1d({v}, {k}, {s})",
             flat=True),
    _pool_op("avgpool1d", "F.avg_pool1d(x, {k}, {s}, {k} // 2)",
             "avgpool1d({v}, {k}, {s})", flat=True),
)  # fmt: skip
POOL_2D = (
    _pool_op("maxpool2d", "F.max_pool2d(x, {k}, {s}, {k} // 2)", "maxpool2d({v}, {k}, {s})",
             flat=False),
    _pool_op("avgpool2d", "F.avg_pool2d(x, {k}, {s}, {k} // 2)",
             "avgpool2d({v}, {k}, {s})", flat=False),
    _pool_op("normpool2d",
             "torch.sqrt(F.avg_pool2d(x * x, {k}, {s}, {k} // 2) * {k} ** 2)",
             "l2 pooling of {v}, window {k}, stride {s}", flat=False),
)  # fmt: skip

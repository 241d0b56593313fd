"""Convolutions: of sequences and images, depthwise, and as a block with bias or residual.

Padding is half the window, so that an odd window at stride 1 keeps the extent.
"""

from __future__ import annotations

from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Size,
    WorkloadOp,
    sums,
    weight,
)

# --- sequences -----------------------------------------------------------------------------------

_CONV_1D: tuple[Size, Size, Size] = ((2, 8, 128, 16), (3, 5, 61, 7), (1, 2, 9, 3))
"""Batch, channels in, extent, channels out."""
_GPU_CONV_1D: tuple[Size, Size, Size] = ((32, 64, 8192, 64), (5, 37, 8191, 61), (1, 2, 9, 3))


def _odd_window(params: Params) -> bool:
    return params[0] in (3, 5, 7)


CONV_1D = (
    WorkloadOp(
        name="conv1d",
        inputs=lambda params, size: (
            Given("x", size[:3]),
            weight("u", size[3], size[1], params[0]),
        ),
        torch=("F.conv1d(x, u, padding={k} // 2)",),
        spoken="conv1d({v}, u), {k} taps",
        sizes=_CONV_1D,
        gpu_sizes=_GPU_CONV_1D,
        interval=sums(64 * 7),
        letters="k",
        choices=((3,), (5,), (7,)),
        terms=lambda params, shapes: shapes[0][1] * params[0],
        check=_odd_window,
    ),
)

# --- images --------------------------------------------------------------------------------------

_CONV_2D: tuple[Size, Size, Size] = ((2, 4, 24, 24, 8), (1, 3, 19, 21, 5), (1, 2, 6, 7, 2))
"""Batch, channels in, height, width, channels out."""
_GPU_CONV_2D: tuple[Size, Size, Size] = (
    (16, 64, 128, 128, 64),
    (3, 19, 127, 125, 21),
    (1, 2, 6, 7, 2),
)
_BLOCK_2D: tuple[Size, Size, Size] = ((2, 6, 24, 24, 6), (1, 5, 19, 21, 5), (1, 2, 6, 7, 2))
_GPU_BLOCK_2D: tuple[Size, Size, Size] = (
    (16, 64, 128, 128, 64),
    (3, 21, 127, 125, 21),
    (1, 2, 6, 7, 2),
)


def _conv_op(name: str, torch: str, spoken: str, *, square: bool, bias: bool = False) -> WorkloadOp:
    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        batch, channels, height, width, out = size
        given = [
            Given("x", (batch, channels, height, width)),
            weight("u", out, channels, params[0], params[0]),
        ]
        return (*given, weight("b", out)) if bias else tuple(given)

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        sizes=_BLOCK_2D if square else _CONV_2D,
        gpu_sizes=_GPU_BLOCK_2D if square else _GPU_CONV_2D,
        interval=sums(64 * 25 + 1),
        letters="k",
        choices=((3,), (5,)),
        terms=lambda params, shapes: shapes[0][1] * params[0] ** 2,
        check=_odd_window,
    )


CONV_2D = (
    _conv_op("conv2d", "F.conv2d(x, u, padding={k} // 2)", "conv2d({v}, u), {k}x{k}", square=False),
)
CONV_BLOCK = (
    _conv_op("convbias", "F.conv2d(x, u, b, padding={k} // 2)", "conv2d({v}, u, b), {k}x{k}",
             square=False, bias=True),
    _conv_op("convresidual", "x + F.conv2d(x, u, padding={k} // 2)",
             "{v} + conv2d({v}, u), {k}x{k}", square=True),
)  # fmt: skip

# --- depthwise -----------------------------------------------------------------------------------

_DEPTH: tuple[Size, Size, Size] = ((2, 8, 40, 40), (3, 5, 31, 37), (1, 2, 6, 7))
_GPU_DEPTH: tuple[Size, Size, Size] = ((32, 64, 256, 256), (5, 37, 251, 253), (1, 2, 6, 7))


def _depth_op(name: str, torch: str, spoken: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (
            Given("x", size),
            weight("u", size[1], 1, params[0], params[0]),
        ),
        torch=(torch,),
        spoken=spoken,
        sizes=_DEPTH,
        gpu_sizes=_GPU_DEPTH,
        interval=sums(50),
        letters="k",
        choices=((3,), (5,), (7,)),
        terms=lambda params, shapes: int(params[0] ** 2),
        check=_odd_window,
    )


DEPTHWISE_CONV = (
    _depth_op("depthwise", "F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
              "depthwise conv2d({v}, u), {k}x{k}"),
    _depth_op("depthresidual", "x + F.conv2d(x, u, padding={k} // 2, groups=x.size(1))",
              "{v} + depthwise conv2d({v}, u), {k}x{k}"),
)  # fmt: skip

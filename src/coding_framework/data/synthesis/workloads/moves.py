"""Workloads that move data, or work along an inner axis: permutations, reductions of a middle axis,
rows by index, counts, gates, rotary embeddings, channel-wise norms, upsampling."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.workloads.base import (
    Given,
    Params,
    Size,
    WorkloadOp,
    same,
    weight,
)
from coding_framework.types import DType

_FLOATS: tuple[DType, ...] = ("float32", "float16", "bfloat16")

# --- permutations: transposes of a batch of matrices ----------------------------------------------

_CUBE: tuple[Size, Size, Size] = ((8, 96, 128), (5, 61, 75), (2, 3, 5))
_GPU_CUBE: tuple[Size, Size, Size] = ((64, 1024, 512), (37, 1021, 509), (2, 3, 5))


PERMUTE = tuple(
    WorkloadOp(
        name=f"permute{order.replace(', ', '')}",
        inputs=lambda params, size: (Given("x", size),),
        torch=(f"x.permute({order}).contiguous()",),
        spoken=f"{{v}} with its axes in the order ({order})",
        sizes=_CUBE,
        gpu_sizes=_GPU_CUBE,
        dtypes=_FLOATS,
        atoms=("transpose",),
    )
    for order in ("0, 2, 1", "2, 0, 1", "1, 2, 0")
)

# --- reductions of the middle axis ----------------------------------------------------------------

_MIDDLE: tuple[Size, Size, Size] = ((4, 128, 64), (3, 75, 45), (2, 3, 5))
_GPU_MIDDLE: tuple[Size, Size, Size] = ((16, 8192, 256), (5, 4093, 509), (2, 3, 5))


def _middle_op(
    name: str,
    torch: str,
    interval: Callable[[Interval], Interval],
) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size),),
        torch=(torch,),
        spoken=f"{name}({{v}}) along the middle axis",
        sizes=_MIDDLE,
        gpu_sizes=_GPU_MIDDLE,
        interval=interval,
        terms=lambda params, shapes: 1 if name in ("midmax", "midmin") else shapes[0][1],
        dtypes=_FLOATS[:1],
    )


def _mean(v: Interval) -> Interval:
    middle = (v.typical_low + v.typical_high) / 2
    spread = (v.typical_high - v.typical_low) / 16
    return Interval(v.low, v.high, middle - spread, middle + spread)


def _extreme(v: Interval) -> Interval:
    return Interval(v.low, v.high, v.typical_low, v.typical_high)


def _sum(v: Interval) -> Interval:
    spread = 8 * (v.typical_high - v.typical_low)
    centre = 64 * (v.typical_low + v.typical_high)
    return Interval(min(v.low * 8192, v.low), max(v.high * 8192, v.high), centre - spread,
                    centre + spread)  # fmt: skip


MIDDLE_REDUCTION = (
    _middle_op("midsum", "x.sum(dim=1)", _sum),
    _middle_op("midmean", "x.mean(dim=1)", _mean),
    _middle_op("midmax", "x.amax(dim=1)", _extreme),
    _middle_op("midmin", "x.amin(dim=1)", _extreme),
    _middle_op(
        "midnorm",
        "torch.linalg.vector_norm(x, dim=1)",
        lambda v: Interval(0.0, 91 * max(abs(v.low), abs(v.high)), 2.0, 40.0),
    ),
)

# --- rows by index --------------------------------------------------------------------------------

_TABLE: tuple[Size, Size, Size] = ((200, 128, 300), (101, 75, 83), (4, 5, 3))
"""Rows of the table, columns, rows asked for."""
_GPU_TABLE: tuple[Size, Size, Size] = ((32768, 1024, 32768), (4093, 1021, 8191), (4, 5, 3))


def _gather_op(name: str, torch: str, spoken: str, other: str = "") -> WorkloadOp:
    def inputs(params: Params, size: Size) -> tuple[Given, ...]:
        rows, columns, asked = size
        given = [Given("x", (rows, columns)), Given("y", (asked,), "int64", 0.0, rows - 1.0)]
        further = {"": (), "z": (Given("z", (asked, columns)),), "b": (weight("b", columns),),
                   "c": (Given("c", (asked,)),)}  # fmt: skip
        return (*given, *further[other])

    return WorkloadOp(
        name=name,
        inputs=inputs,
        torch=(torch,),
        spoken=spoken,
        sizes=_TABLE,
        gpu_sizes=_GPU_TABLE,
        interval=same if not other else lambda v: Interval.of(2 * v.low - 2.5, 2 * v.high + 2.5),
        dtypes=_FLOATS if not other else _FLOATS[:1],
    )


GATHER = (
    _gather_op("gatherrows", "x[y]", "rows y of {v}"),
    _gather_op("gatheradd", "x[y] + z", "rows y of {v}, plus z", "z"),
    _gather_op("gatherbias", "x[y] + b", "rows y of {v}, plus b", "b"),
    _gather_op("gatherscale", "x[y] * c[:, None]", "rows y of {v}, times c", "c"),
)

# --- counts ---------------------------------------------------------------------------------------

_COUNTS: tuple[Size, Size, Size] = ((32768,), (10007,), (13,))
_GPU_COUNTS: tuple[Size, Size, Size] = ((16777216,), (8388593,), (13,))


def _histogram_op(name: str, torch: str, spoken: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size, "int64"),),
        torch=(torch,),
        spoken=spoken,
        sizes=_COUNTS,
        gpu_sizes=_GPU_COUNTS,
        steps_before=False,
        letters="c",
        choices=((8,), (10,), (16,), (32,), (64,), (100,), (128,), (256,)),
        x_range=(0.0, 1000.0),
        output="int64",
        check=lambda params: 2 <= params[0] <= 1000,
    )


HISTOGRAM = (
    _histogram_op(
        "countmod",
        "torch.bincount(x % {c}, minlength={c})",
        "how many of {v} have each remainder mod {c}",
    ),
    _histogram_op(
        "countclamp",
        "torch.bincount(x.clamp(max={c} - 1), minlength={c})",
        "how many of min({v}, {c} - 1) have each value",
    ),
    _histogram_op(
        "countscaled",
        "torch.bincount(x * {c} // 1001, minlength={c})",
        "a histogram of {v} with {c} bins over [0, 1000]",
    ),
)

# --- gates over halves of the last axis -----------------------------------------------------------

_HALVES: tuple[Size, Size, Size] = ((128, 512), (61, 262), (3, 6))
_GPU_HALVES: tuple[Size, Size, Size] = ((4096, 8192), (4093, 8190), (3, 6))


def _glu_op(name: str, torch: str) -> WorkloadOp:
    return WorkloadOp(
        name=name,
        inputs=lambda params, size: (Given("x", size),),
        torch=("a, g = x.chunk(2, dim=1)", torch),
        spoken=f"{name}({{v}}) of its halves",
        sizes=_HALVES,
        gpu_sizes=_GPU_HALVES,
        interval=lambda v: Interval(-17.0, 17.0, -2.0, 2.0),
        steps_before=False,
    )


GLU = (
    _glu_op("glu", "a * torch.sigmoid(g)"),
    _glu_op("siluglu", "a * F.silu(g)"),
    _glu_op("geluglu", "a * F.gelu(g)"),
    _glu_op("reluglu", "a * torch.relu(g)"),
    _glu_op("tanhglu", "a * torch.tanh(g)"),
)

"""Workloads that move data, or work along an inner axis: permutations, reductions of a middle axis,
rows by index, counts, gates."""

from __future__ import annotations

from functools import partial

from coding_framework.data.synthesis.interval import Interval
from coding_framework.data.synthesis.layouts import LAYOUTS
from coding_framework.data.synthesis.workloads.base import (
    FLOATS,
    Given,
    Sizes,
    WorkloadOp,
    same,
    weight,
    within,
)

# --- permutations: transposes of a batch of matrices ----------------------------------------------

PERMUTE = tuple(
    WorkloadOp(
        f"permute{order.replace(', ', '')}",
        f"x.permute({order}).contiguous()",
        f"{{v}} with its axes in the order ({order})",
        Sizes(
            "bnm",
            ((8, 96, 128), (5, 61, 75), (2, 3, 5)),
            ((64, 1024, 512), (37, 1021, 509), (2, 3, 5)),
        ),
        dtypes=FLOATS,
        atoms=("transpose",),
    )
    for order in ("0, 2, 1", "2, 0, 1", "1, 2, 0")
)

# --- reductions of the middle axis ----------------------------------------------------------------


def _sum(v: Interval) -> Interval:
    spread = 8 * (v.typical_high - v.typical_low)
    centre = 64 * (v.typical_low + v.typical_high)
    low, high = min(v.low * 8192, v.low), max(v.high * 8192, v.high)
    return Interval(low, high, centre - spread, centre + spread)


def _norm(v: Interval) -> Interval:
    return Interval(0.0, 91 * max(abs(v.low), abs(v.high)), 2.0, 40.0)


_MIDDLE = Sizes(
    "bnm",
    ((4, 128, 64), (3, 75, 45), (2, 3, 5)),
    ((16, 8192, 256), (5, 4093, 509), (2, 3, 5)),
)
MIDDLE_REDUCTION = tuple(
    WorkloadOp(name, torch, f"{name}({{v}}) along the middle axis", _MIDDLE, interval=interval,
               terms=terms)
    for name, torch, interval, terms in (
        ("midsum", "x.sum(dim=1)", _sum, "n"),
        ("midmean", "x.mean(dim=1)", LAYOUTS["rowmean"].interval, "n"),
        ("midmax", "x.amax(dim=1)", same, "1"),
        ("midmin", "x.amin(dim=1)", same, "1"),
        ("midnorm", "torch.linalg.vector_norm(x, dim=1)", _norm, "n"),
    )
)  # fmt: skip

# --- rows by index --------------------------------------------------------------------------------

_ASKED = Given("y", "a", "int64", 0.0, "n")
_gather = partial(
    WorkloadOp,
    sizes=Sizes(
        "nma",
        ((200, 128, 300), (101, 75, 83), (4, 5, 3)),
        ((32768, 1024, 32768), (4093, 1021, 8191), (4, 5, 3)),
    ),
    x="n m",
    interval=lambda v: Interval.of(2 * v.low - 2.5, 2 * v.high + 2.5),
)
"""Rows of the table, columns, rows asked for."""
GATHER = (
    _gather("gatherrows", "x[y]", "rows y of {v}", others=(_ASKED,), interval=same, dtypes=FLOATS),
    _gather("gatheradd", "x[y] + z", "rows y of {v}, plus z", others=(_ASKED, Given("z", "a m"))),
    _gather("gatherbias", "x[y] + b", "rows y of {v}, plus b", others=(_ASKED, weight("b", "m"))),
    _gather("gatherscale", "x[y] * c[:, None]", "rows y of {v}, times c",
            others=(_ASKED, Given("c", "a"))),
)  # fmt: skip

# --- counts ---------------------------------------------------------------------------------------

_histogram = partial(
    WorkloadOp,
    sizes=Sizes("n", ((32768,), (10007,), (13,)), ((16777216,), (8388593,), (13,))),
    x_dtype="int64",
    x_range=(0.0, 1000.0),
    steps_before=False,
    letters="c",
    choices=((8,), (10,), (16,), (32,), (64,), (100,), (128,), (256,)),
    output="int64",
    check=lambda params: 2 <= params[0] <= 1000,
)
HISTOGRAM = (
    _histogram("countmod", "torch.bincount(x % {c}, minlength={c})",
               "how many of {v} have each remainder mod {c}"),
    _histogram("countclamp", "torch.bincount(x.clamp(max={c} - 1), minlength={c})",
               "how many of min({v}, {c} - 1) have each value"),
    _histogram("countscaled", "torch.bincount(x * {c} // 1001, minlength={c})",
               "a histogram of {v} with {c} bins over [0, 1000]"),
)  # fmt: skip

# --- gates over halves of the last axis -----------------------------------------------------------

_HALVES = Sizes("nm", ((128, 512), (61, 262), (3, 6)), ((4096, 8192), (4093, 8190), (3, 6)))
GLU = tuple(
    WorkloadOp(name, ("a, g = x.chunk(2, dim=1)", f"a * {gate}"),
               f"{name}({{v}}) of its halves", _HALVES, steps_before=False,
               interval=within(-17.0, 17.0, -2.0, 2.0))
    for name, gate in (
        ("glu", "torch.sigmoid(g)"),
        ("siluglu", "F.silu(g)"),
        ("geluglu", "F.gelu(g)"),
        ("reluglu", "torch.relu(g)"),
        ("tanhglu", "torch.tanh(g)"),
    )
)  # fmt: skip

"""The one step of a program that looks beyond its element: reductions, scans, norms, products.

Each layout is a row of one table: its PyTorch, its words, its values (to compare programs), the
range of its results, its atoms for the canonical key. Kernels are written by its `form`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

from coding_framework.data.synthesis.interval import Interval

Form = Literal["map", "reduce", "normalize", "scan", "transpose", "columns", "all", "matmul"]
Row = list[float]
Matrix = list[Row]

LONGEST = 8192
"""Extent of the longest reduction in any shape set: bounds of sums hold for it."""
USUAL = 256
"""Extent of reductions on the emulator: what results typically look like."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A change of shape, or a computation along a row, a column or everything."""

    name: str
    form: Form
    torch: str
    """With {v}; the matrix product also reads the input u."""
    spoken: str
    values: Callable[[Matrix], Matrix]
    """Of the output, on a small matrix."""
    interval: Callable[[Interval], Interval]
    atoms: tuple[str, ...] = ()
    sums: bool = False
    """Whether results add up a whole row or more: the K of the tolerance."""


# --- ranges -------------------------------------------------------------------------------------


def _middle(v: Interval) -> float:
    return (v.typical_low + v.typical_high) / 2


def _width(v: Interval) -> float:
    return v.typical_high - v.typical_low


def _largest(v: Interval) -> float:
    return max(abs(v.typical_low), abs(v.typical_high))


def _same(v: Interval) -> Interval:
    return v


def _sum(v: Interval) -> Interval:
    low, high = min(v.low * LONGEST, v.low), max(v.high * LONGEST, v.high)
    centre, spread = _middle(v) * USUAL, 8 * _width(v)
    return Interval(low, high, centre - spread, centre + spread)


def _mean(v: Interval) -> Interval:
    spread = _width(v) / 16
    return Interval(v.low, v.high, _middle(v) - spread, _middle(v) + spread)


def _max(v: Interval) -> Interval:
    return Interval(v.low, v.high, _middle(v) + _width(v) / 4, v.typical_high)


def _min(v: Interval) -> Interval:
    return Interval(v.low, v.high, v.typical_low, _middle(v) - _width(v) / 4)


def _logsumexp(v: Interval) -> Interval:
    more = math.log(USUAL)
    return Interval(v.low, v.high + math.log(LONGEST), _middle(v) + more / 2, v.typical_high + more)


def _variance(v: Interval) -> Interval:
    square = _width(v) ** 2
    return Interval(0.0, (v.high - v.low) ** 2 / 4, 0.04 * square, 0.12 * square)


def _norm(v: Interval) -> Interval:
    largest = max(abs(v.low), abs(v.high))
    usual = _largest(v) * math.sqrt(USUAL)
    return Interval(0.0, largest * math.sqrt(LONGEST), 0.3 * usual, 0.9 * usual)


def _standard(v: Interval) -> Interval:
    bound = math.sqrt(LONGEST)
    return Interval(-bound, bound, -2.0, 2.0)


def _rms(v: Interval) -> Interval:
    bound, largest = math.sqrt(LONGEST), _largest(v)
    low, high = 1.7 * v.typical_low / largest, 1.7 * v.typical_high / largest
    return Interval(-bound if v.low < 0 else 0.0, bound if v.high > 0 else 0.0, low, high)


def _unit(v: Interval) -> Interval:
    rms = _rms(v)
    low, high = max(rms.low, -1.0), min(rms.high, 1.0)
    return Interval(low, high, rms.typical_low / 8, rms.typical_high / 8)


def _centred(v: Interval) -> Interval:
    span = v.high - v.low
    return Interval(-span, span, -_width(v) / 2, _width(v) / 2)


def _probability(v: Interval) -> Interval:
    return Interval(0.0, 1.0, 0.0, 0.05)


def _log_probability(v: Interval) -> Interval:
    span = v.high - v.low + math.log(LONGEST)
    return Interval(-span, 0.0, -4.0 - _width(v), -4.0)


def _product(v: Interval) -> Interval:
    low, high = MATRIX_RANGE
    bound = LONGEST * max(abs(v.low), abs(v.high)) * max(-low, high)
    spread = 4.0 * _largest(v) * (high - low)
    return Interval(-bound, bound, -spread, spread)


# --- values -------------------------------------------------------------------------------------

MATRIX_RANGE = (-1.0, 1.0)
"""Of the right-hand matrix of a product."""
_RIGHT: Matrix = [
    [-0.7, 0.3, 0.9, -0.2],
    [0.5, -0.8, 0.1, 0.6],
    [0.2, 0.7, -0.4, -0.9],
    [0.8, 0.1, 0.4, -0.3],
]


def right_matrix() -> Matrix:
    """The right-hand matrix on which products are compared."""
    return [list(row) for row in _RIGHT]


def _reduced(f: Callable[[Row], float]) -> Callable[[Matrix], Matrix]:
    return lambda matrix: [[f(row)] for row in matrix]


def _rowwise(f: Callable[[Row], Row]) -> Callable[[Matrix], Matrix]:
    return lambda matrix: [f(row) for row in matrix]


def _columns(f: Callable[[Row], float]) -> Callable[[Matrix], Matrix]:
    return lambda matrix: [[f(list(column)) for column in zip(*matrix, strict=True)]]


def _mean_of(row: Row) -> float:
    return sum(row) / len(row)


def _variance_of(row: Row) -> float:
    mean = _mean_of(row)
    return _mean_of([(v - mean) ** 2 for v in row])


def _norm_of(row: Row) -> float:
    return math.sqrt(sum(v * v for v in row))


def _log_sum_exp(row: Row) -> float:
    top = max(row)
    return top + math.log(sum(math.exp(v - top) for v in row))


def _log_softmax(row: Row) -> Row:
    total = _log_sum_exp(row)
    return [v - total for v in row]


def _softmax(row: Row) -> Row:
    return [math.exp(v) for v in _log_softmax(row)]


def _centre(row: Row) -> Row:
    mean = _mean_of(row)
    return [v - mean for v in row]


def _layer_norm(row: Row) -> Row:
    scale = 1.0 / math.sqrt(_variance_of(row) + 1e-5)
    return [v * scale for v in _centre(row)]


def _rms_norm(row: Row) -> Row:
    scale = 1.0 / math.sqrt(_mean_of([v * v for v in row]) + 1e-6)
    return [v * scale for v in row]


def _unit_norm(row: Row) -> Row:
    norm = _norm_of(row)
    return [v / norm for v in row]


def _matmul(matrix: Matrix) -> Matrix:
    columns = list(zip(*_RIGHT, strict=True))
    return [[sum(a * b for a, b in zip(r, c, strict=True)) for c in columns] for r in matrix]


# --- the table ----------------------------------------------------------------------------------


def _folded(
    form: Form,
    over: Callable[[Callable[[Row], float]], Callable[[Matrix], Matrix]],
    name: str,
    torch: str,
    value: Callable[[Row], float],
    interval: Callable[[Interval], Interval],
    *atoms: str,
    sums: bool = True,
) -> Layout:
    """One value of each row, or of each column."""
    return Layout(name, form, torch, f"{name}({{v}})", over(value), interval, atoms, sums)


_reduce = partial(_folded, "reduce", _reduced)
_column = partial(_folded, "columns", _columns)


def _normalize(
    name: str,
    torch: str,
    value: Callable[[Row], Row],
    interval: Callable[[Interval], Interval],
    *atoms: str,
) -> Layout:
    spoken = f"{name}({{v}}) of each row"
    return Layout(name, "normalize", torch, spoken, _rowwise(value), interval, atoms, sums=True)


_RMS_NORM = "{v} * torch.rsqrt(({v} * {v}).mean(dim=1, keepdim=True) + 1e-6)"

_TABLE = (
    Layout("map", "map", "{v}", "{v}", lambda m: m, _same),
    _reduce("rowsum", "torch.sum({v}, dim=1)", sum, _sum, "sum"),
    _reduce("rowmean", "torch.mean({v}, dim=1)", _mean_of, _mean, "sum", "scale"),
    _reduce("rowmax", "torch.max({v}, dim=1).values", max, _max, "ext", sums=False),
    _reduce("rowmin", "torch.min({v}, dim=1).values", min, _min, "ext", sums=False),
    _reduce(
        "logsumexp", "torch.logsumexp({v}, dim=1)", _log_sum_exp, _logsumexp, "exp", "sum", "log"
    ),
    _reduce(
        "rowvar",
        "torch.var({v}, dim=1, correction=0)",
        _variance_of,
        _variance,
        *("center", "square", "sum", "scale"),
    ),
    _reduce(
        "rownorm",
        "torch.linalg.vector_norm({v}, dim=1)",
        _norm_of,
        _norm,
        *("square", "sum", "sqrt"),
    ),
    _normalize("softmax", "torch.softmax({v}, dim=1)", _softmax, _probability, "softmax"),
    _normalize(
        "logsoftmax",
        "torch.log_softmax({v}, dim=1)",
        _log_softmax,
        _log_probability,
        *("softmax", "log"),
    ),
    _normalize(
        "layernorm",
        "F.layer_norm({v}, {v}.shape[1:])",
        _layer_norm,
        _standard,
        *("center", "unit", "scale"),
    ),
    _normalize("rmsnorm", _RMS_NORM, _rms_norm, _rms, "unit", "scale"),
    _normalize("unitnorm", "F.normalize({v}, dim=1)", _unit_norm, _unit, "unit"),
    _normalize("center", "{v} - {v}.mean(dim=1, keepdim=True)", _centre, _centred, "center"),
    Layout(
        "cumsum",
        "scan",
        "torch.cumsum({v}, dim=1)",
        "cumsum({v}) along each row",
        _rowwise(lambda r: list(accumulate(r))),
        _sum,
        ("cumsum",),
        sums=True,
    ),
    Layout(
        "cummax",
        "scan",
        "torch.cummax({v}, dim=1).values",
        "cummax({v}) along each row",
        _rowwise(lambda r: list(accumulate(r, max))),
        _same,
        ("cummax",),
    ),
    Layout(
        "transpose",
        "transpose",
        "{v}.t().contiguous()",
        "transpose({v})",
        lambda m: [list(column) for column in zip(*m, strict=True)],
        _same,
        ("transpose",),
    ),
    _column("colsum", "torch.sum({v}, dim=0)", sum, _sum, "colsum"),
    _column("colmean", "torch.mean({v}, dim=0)", _mean_of, _mean, "colsum", "scale"),
    _column("colmax", "torch.max({v}, dim=0).values", max, _max, "colext", sums=False),
    Layout(
        "allmean",
        "all",
        "torch.mean({v})",
        "mean({v}) of everything",
        lambda m: [[_mean_of([v for row in m for v in row])]],
        _mean,
        ("allsum", "scale"),
        sums=True,
    ),
    Layout("matmul", "matmul", "{v} @ u", "({v}) @ u", _matmul, _product, ("matmul",), sums=True),
)

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in _TABLE}

"""Inputs at the edges of what a function takes, beside those that are drawn (`inputs.py`).

A task's own draws rarely hold an exact zero, two equal values, a row without a positive value or a
number beyond 10; a kernel that lacks a clamp or the maximum of its softmax is right without them.
Edge draws hold what those lack, inside the domain that the task declares. Where PyTorch itself
loses the answer an element decides nothing (`reference.py`).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from coding_framework.cuda.expected.inputs import (
    TORCH_DTYPES,
    derive_seed,
    draw_input,
    structured,
)
from coding_framework.types import InitArg, TensorSpec, TestCase

if TYPE_CHECKING:
    from coding_framework.cuda.expected.inputs import Floats

EdgeKind = Literal["ties", "negative", "large", "spikes", "positive", "plain"]
"""ties: zeros of both signs, equal values, constant rows. negative: no value above -1.5, of a size
from 15 to some thousands. positive: the same of the other sign, from 150 on. large: from 30 up to a
million, and up to 1e30 where no sum adds values of different size; integers at the ends of their
dtype. spikes: small values, and a few at random places and at the ends that are a hundred times as
large, so that each of them shows in a sum of any length. plain: an ordinary draw, of which only
what PyTorch gets right decides, for shapes that may be degenerate; its rows end with their largest
or their smallest value."""
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
_FIRST_SEED = 1 << 40
"""Edge draws have seeds beyond all others."""
_STEP = 0.25
"""Ties lie on multiples of it: sums of them are exact in any order."""
_LEAST_LANDMARK, _EXACT_STEPS = 1e-3, 64
_MOST_LANDMARK = (16.0, 100.0)
"""Of a whole number, above which it is a size, and of another."""
_LEAST_SIZE = 1.5
_ONE_SIGN = {"negative": (1.0, 3.5), "positive": (2.0, 4.0)}
"""Orders of magnitude of values of one sign: beyond what an extreme is started with."""
_LARGE = {"float16": (1e3, 6e4), "float64": (1e6, 1e30), "float32": (1e6, 1e30)}
"""The largest scale where values are added up, and where they are not."""
_SMALLEST_LARGE = 30.0
_LONG_SUM = 128
"""From so many terms on a sum may lose some of like size within its tolerance."""
_MOST_SPIKES = 128
_SPIKE = 10.0
"""The largest where no domain is declared."""
_MIDDLE = 1e3
"""Half of the slices of a large draw stay below it: there most functions still tell."""


def edge_seed(kind: EdgeKind) -> int:
    """The number by which the edge draw of this kind goes among the seeds of a shape set."""
    return _FIRST_SEED + EDGE_KINDS.index(kind)


def edge_kind(seed: int) -> EdgeKind | None:
    """The kind of edge draw that a seed stands for; None for an ordinary draw."""
    number = seed - _FIRST_SEED
    return EDGE_KINDS[number] if 0 <= number < len(EDGE_KINDS) else None


def draw_name(seed: int) -> str:
    """What a verdict calls a draw."""
    kind = edge_kind(seed)
    if kind == "plain":
        return "ordinary values"
    return f"seed {seed}" if kind is None else f"edge draw {kind!r}"


def edge_kinds(case: TestCase, number: int = 0) -> tuple[EdgeKind, ...]:
    """The kinds that hold something which ordinary draws of this shape set do not. number: of the
    shape set in its task: values of one sign are negative and positive in turn."""
    numbers = [spec for spec in case.inputs if spec.dtype != "bool"]
    free = any(spec.low is None or spec.high is None for spec in numbers)
    below = any(spec.low is None or spec.low < 0 for spec in numbers)
    long = case.reduction_length >= _LONG_SUM
    above = any(_has_room_above(spec) for spec in numbers)
    negative = below and (number % 2 == 0 or not above)
    held = {
        "ties": bool(numbers),
        "negative": negative,
        "large": free,
        "spikes": long,
        "positive": above and not negative,
        "plain": False,
    }
    return tuple(kind for kind in EDGE_KINDS if held[kind])


def _has_room_above(spec: TensorSpec) -> bool:
    return spec.high is None and TORCH_DTYPES[spec.dtype].is_floating_point


def draw_edges(
    case: TestCase,
    kind: EdgeKind,
    secret: bytes,
    task_digest: str,
    landmarks: Sequence[float] = (),
) -> tuple[torch.Tensor, ...]:
    """The inputs of one edge draw, as `draw_inputs` gives them. landmarks: numbers at which the
    function may change, which ties have too."""
    return tuple(
        structured(_drawn(case, j, kind, secret, task_digest, landmarks), spec)
        for j, spec in enumerate(case.inputs)
    )


@lru_cache(maxsize=256)
def landmarks_of(reference: str, init_args: tuple[InitArg, ...]) -> tuple[float, ...]:
    """The numbers that a module's source and its arguments name: where it compares, clips or
    counts. Those of a usual size, of either sign."""
    try:
        classes = [node for node in ast.parse(reference).body if isinstance(node, ast.ClassDef)]
    except SyntaxError:
        return ()
    named = [n.value for c in classes for n in ast.walk(c) if isinstance(n, ast.Constant)]
    numbers = [v for v in (*named, *init_args) if isinstance(v, int | float)]  # True is 1
    found = {abs(v) for v in numbers if abs(v) <= _MOST_LANDMARK[type(v) is float]}
    usual = sorted(float(v) for v in found if v >= _LEAST_LANDMARK)
    return tuple(sign * v for v in usual for sign in (1.0, -1.0))


def _drawn(
    case: TestCase,
    j: int,
    kind: EdgeKind,
    secret: bytes,
    task_digest: str,
    landmarks: Sequence[float],
) -> torch.Tensor:
    spec, dtype = case.inputs[j], TORCH_DTYPES[case.inputs[j].dtype]

    def usual() -> torch.Tensor:
        return draw_input(case, j, secret, task_digest, edge_seed(kind))

    generator = np.random.Generator(
        np.random.Philox(key=derive_seed(secret, "edge", task_digest, case.name, kind, j))
    )
    if not dtype.is_floating_point:
        return _whole_numbers(spec, kind, generator, usual())
    if kind == "large" and spec.low is not None and spec.high is not None:
        return usual()
    if kind == "negative" and spec.low is not None and spec.low >= 0:
        return usual()
    if kind == "plain":
        return _with_extreme_ends(usual())
    if kind == "positive" and not _has_room_above(spec):
        return usual()
    adds = case.reduction_length > 1
    values = _KINDS[kind](spec, adds, generator)
    if kind == "ties":
        values = _with_landmarks(values, landmarks, adds, generator)
    low, high = spec.low, spec.high
    if low is not None or high is not None:
        values = np.clip(values, low, high)
    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    if low is not None or high is not None:  # rounding to the dtype may step outside
        tensor = tensor.clamp(low, high)
    return tensor.reshape(spec.shape)


def _whole_numbers(
    spec: TensorSpec, kind: EdgeKind, g: np.random.Generator, usual: torch.Tensor
) -> torch.Tensor:
    """The ends of the dtype where the task declares none, and what lies around zero."""
    if spec.dtype == "bool" or spec.low is not None or spec.high is not None or kind != "large":
        return usual
    ends = torch.iinfo(usual.dtype)
    least = 0 if ends.min == 0 else -ends.max  # the one below has no counterpart
    choices = torch.tensor([least, least + 1, 0, 1, ends.max - 1, ends.max], dtype=usual.dtype)
    picks = torch.from_numpy(g.integers(len(choices), size=max(1, math.prod(spec.shape))))
    return choices[picks][: usual.numel()].reshape(spec.shape)


def _with_extreme_ends(values: torch.Tensor) -> torch.Tensor:
    """In each row the last element changes places with the largest, in every second with the
    smallest."""
    if not values.numel() or not values.dim():
        return values
    rows = values.reshape(-1, values.shape[-1]).clone()
    at = rows.argmax(1)
    at[1::2] = rows[1::2].argmin(1)
    number = torch.arange(len(rows))
    extremes, last = rows[number, at], rows[:, -1].clone()
    rows[number, at], rows[:, -1] = last, extremes
    return rows.reshape(values.shape)


# --- kinds ----------------------------------------------------------------------------------------


def _slices(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that tell the slices apart which are drawn alike: the first one of two and more, all of
    a vector."""
    if len(shape) < 2:
        return shape
    first = next((i for i, n in enumerate(shape[:-1]) if n > 1), 0)
    return tuple(n if i == first else 1 for i, n in enumerate(shape))


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1) if len(shape) > 1 else (1,) * len(shape)


def _ties(spec: TensorSpec, adds: bool, g: np.random.Generator) -> Floats:
    """Rows of four kinds: zeros of both signs; one value, zero or not; few values, a third of them
    zero; and few values of half the step, none of them zero: some are a half when times 4."""
    span = 8 if spec.low is None and spec.high is None else _span_in_steps(spec)
    few = g.integers(-span, span + 1, spec.shape) * _STEP
    few = np.where(g.random(spec.shape) < 1 / 3, 0.0, few)
    unlike_zero = np.where(few == 0.0, _STEP, few) / 2
    constant = g.integers(-span, span + 1, _rows(spec.shape)) * _STEP
    kind = (g.permutation(math.prod(_rows(spec.shape))) % 4).reshape(_rows(spec.shape))
    values = np.where(kind == 0, 0.0, np.where(kind == 1, constant, few))
    values = np.where(kind == 3, unlike_zero, values)
    minus = g.random(spec.shape) < 0.5
    return np.where((values == 0.0) & minus, -0.0, values)


def _with_landmarks(
    values: Floats, landmarks: Sequence[float], adds: bool, g: np.random.Generator
) -> Floats:
    """One element in 16 is a number that the function names, but for rows of one value; where it
    adds up, of those alone whose sums are exact."""
    marks = [m for m in landmarks if not adds or (m * _EXACT_STEPS).is_integer()]
    if not marks or not values.size:
        return values
    rows = values if values.ndim else values.reshape(1)
    free = (rows.min(-1, keepdims=True) != rows.max(-1, keepdims=True)).reshape(_rows(values.shape))
    chosen = free & (g.random(values.shape) < 1 / 16)
    return np.where(chosen, g.choice(marks, values.shape), values)


def _span_in_steps(spec: TensorSpec) -> int:
    ends = [abs(end) for end in (spec.low, spec.high) if end is not None]
    return max(2, min(8, int(max(ends) / _STEP)))


def _of_one_sign(spec: TensorSpec, kind: EdgeKind, adds: bool, g: np.random.Generator) -> Floats:
    """Sizes of 1.5 and more, times one number for the whole tensor: a reduction along any axis
    finds one sign alone."""
    low, high = _ONE_SIGN[kind]
    top = math.log10(_LARGE.get(spec.dtype, _LARGE["float32"])[0 if adds else 1])
    scale = float(10.0 ** min(g.uniform(low, high), max(low, top - 1)))
    return np.asarray(scale * (_LEAST_SIZE + np.abs(g.standard_normal(spec.shape))))


def _positive(spec: TensorSpec, adds: bool, g: np.random.Generator) -> Floats:
    return (spec.low or 0.0) + _of_one_sign(spec, "positive", adds, g)


def _negative(spec: TensorSpec, adds: bool, g: np.random.Generator) -> Floats:
    """-15 and below; where the domain ends before, its lower half."""
    if spec.low is None:
        return min(0.0, spec.high or 0.0) - _of_one_sign(spec, "negative", adds, g)
    size = np.abs(g.standard_normal(spec.shape))
    most = max(min(-_LEAST_SIZE, 0.5 * spec.low), 0.9 * spec.low)
    return most + (spec.low - most) * np.minimum(size / 3.0, 1.0)


def _large(spec: TensorSpec, adds: bool, g: np.random.Generator) -> Floats:
    """Each slice has a scale of its own, evenly spread over the orders of magnitude."""
    top = _LARGE.get(spec.dtype, _LARGE["float32"])[0 if adds else 1]
    shape = _slices(spec.shape)
    count = max(1, math.prod(shape))
    even = g.permutation((np.arange(count) + g.random(count)) / count)
    low, middle, high = (math.log10(v) for v in (_SMALLEST_LARGE, min(_MIDDLE, top), top))
    orders = np.where(
        even < 0.5, low + 2 * even * (middle - low), middle + (2 * even - 1) * (high - middle)
    )
    scale = 10.0 ** orders[: math.prod(shape)].reshape(shape)
    return np.clip(scale * g.standard_normal(spec.shape), -top, top)


def _spikes(spec: TensorSpec, adds: bool, g: np.random.Generator) -> Floats:
    low = -_SPIKE if spec.low is None else spec.low
    high = _SPIKE if spec.high is None else spec.high
    if low >= 0 or high <= 0:
        low = high = max(low, high, key=abs)
    size = np.where(g.random(spec.shape) < 0.5, low, high) * g.uniform(0.5, 1.0, spec.shape)
    count = math.prod(spec.shape)
    places = g.permutation(count)[: max(1, min(_MOST_SPIKES, count // 8))]
    row = spec.shape[-1] if spec.shape else 1
    ends = g.permutation(count // max(1, row))[: _MOST_SPIKES // 2] * row + row - 1
    held = np.zeros(count, dtype=bool)
    held[np.concatenate([places, ends])] = True
    held[:1] = held[-1:] = True
    base = 0.005 * size * g.standard_normal(spec.shape)
    return np.where(held.reshape(spec.shape), size, base)


_KINDS: dict[EdgeKind, Callable[[TensorSpec, bool, np.random.Generator], Floats]] = {
    "ties": _ties,
    "negative": _negative,
    "large": _large,
    "spikes": _spikes,
    "positive": _positive,
}

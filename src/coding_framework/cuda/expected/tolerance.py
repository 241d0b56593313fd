"""How far from the reference an output may be, and the comparison itself.

The bound is that of the design, per element i of an output:

    |out - ref| <= 8 * err_torch + c * eps * sqrt(K) * scale

- `ref`: the task's PyTorch function in float64.
- `err_torch`: the largest error of PyTorch's own result in the task's dtype against `ref`, over
  elements of like scale (within a factor of 16), and over runs whose inputs differ by rounding.
  One element where PyTorch is exact by luck must not ask the same luck of a candidate, and one
  jump of a discontinuous function must not excuse all others.
- `eps`: of the accumulation dtype: float64's for float64, else float32's.
- `K`: terms in the longest reduction (`TestCase.reduction_length`).
- `c`: 4 for K = 1, else 8. sqrt(K) holds for errors of random sign; a plain loop over equal terms
  rounds the same way each time. Measured: the variance of rows of which nine tenths are clipped to
  1, by such a loop over K = 192, reached 0.93 of the bound with c = 4 in 100 draws. Sums of 64 to
  96 terms whose inputs were rounded to half precision or tf32 miss the bound with c = 8 by 4 to 40
  times, in every draw.
- `scale`: max(|ref|, S), S what rounding can lose in the element's own computation, over eps
  (`rounding.py`). For a sum S is about the root of the sum of squares of its summands, so a result
  that cancels to nothing is judged by what was added up, not by what was left.

For shape sets of real size S is the change of `ref` when every input changes by a relative
rounding, over that rounding, and the root mean square of the output bounds the scale from below
(`coarse`): so its small elements get the absolute error of its usual ones. Small shape sets, which
come first, have no such floor (`fine_bounds.py`).

A fixed 1e-2 lets half precision pass for single; this bound is 30 to 500 times too small for it.
Integer and bool outputs are exact. NaN and infinity are equal in place. Dtype, shape and strides
are exact: contiguous, or the reference's own strides where those are not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

TORCH_ERROR_FACTOR = 8.0
_EPS_FACTOR = 4.0
_SUM_FACTOR = 8.0
_BUCKETS = 1 << 10
"""Of two octaves each, of all positive finite float64 numbers."""
_LITTLE = sys.byteorder == "little"
SMALLEST = 1e-300
_MOST_LOOKED_AT = 1 << 22
_EXACT_SHARE, _FEWEST_TOLD = 0.05, 50
_ONE_WAY, _BOTH_WAYS = 0.02, 0.25
"""Of rounded elements, that lie on the other side; equal chances make fewer once in 1e15 times."""
_AT_ONCE = 1 << 26
"""Elements worked on at a time: temporaries of a billion float64 values would fill a GPU."""


@dataclass(frozen=True, slots=True)
class PointedAt:
    """What the elements of an output of indices point at."""

    values: torch.Tensor
    """The rows that were chosen from, in float64: two axes."""
    allowed: torch.Tensor
    """How far two values of a row may lie apart that are equal within rounding; for each row."""
    rows: torch.Tensor
    """Of each element of the output the row that it points into."""
    any_order: bool
    """Whether equal values may come in any order, each once; else the first one is right."""

    def near(self, out: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """The elements of `out` that point at as good a value as those of `reference` do."""
        flat, wanted, rows = (t.reshape(-1).to(torch.int64) for t in (out, reference, self.rows))
        most = self.values.shape[1] - 1
        got = self.values[rows, flat.clamp(0, most)]
        want = self.values[rows, wanted.clamp(0, most)]
        right = ((got - want).abs() <= self.allowed[rows]) | (got == want)
        right &= (flat >= 0) & (flat <= most)
        if self.any_order:
            _, which, counts = torch.unique(
                rows * (most + 1) + flat, return_inverse=True, return_counts=True
            )
            right &= counts[which] == 1
        else:
            right &= (got != want) | (flat == wanted)
        return right.reshape(out.shape)


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What one output must be. Maker: cuda/reference."""

    reference: torch.Tensor
    """float64 for floating outputs, else the output's own dtype."""
    native: torch.Tensor
    """PyTorch's result in the task's dtype: says dtype, shape and strides."""
    tolerance: torch.Tensor | None
    """Allowed |out - ref| per element, float64; None: exact."""
    decides: torch.Tensor | None = None
    """The elements that count; None: all of them."""
    pointed: PointedAt | None = None
    """Where it is indices."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference."""

    passed: bool
    max_abs_error: float | None
    max_rel_error: float | None
    tolerance: float | None
    """Allowed error at the worst element."""
    share: float = 0.0
    """Largest part of its tolerance that an element uses; above 1 it is wrong."""
    detail: str = ""


def accumulation_eps(dtype: torch.dtype) -> float:
    """Rounding unit of the dtype in which a good kernel adds up values of `dtype`."""
    return torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps


def eps_factor(dtype: torch.dtype, reduction_length: int) -> float:
    """c * eps * sqrt(K)."""
    factor = _EPS_FACTOR if reduction_length == 1 else _SUM_FACTOR
    return factor * accumulation_eps(dtype) * math.sqrt(reduction_length)


def parts(count: int) -> Iterator[slice]:
    """Ranges of so many elements, none of which is too large to make temporaries of."""
    for start in range(0, count, _AT_ONCE):
        yield slice(start, min(start + _AT_ONCE, count))


class OutputSpread(Protocol):
    """How far PyTorch's own results of one floating output lie from the reference, and how much
    that changes when all inputs do by a rounding: what its tolerance rests on."""

    def add(self, native: torch.Tensor, reference: torch.Tensor, eps: float) -> None:
        """The same of a run whose inputs differ by a relative `eps`."""
        ...

    def tolerance(self, dtype: torch.dtype, reduction_length: int) -> torch.Tensor:
        """The bound of every element, of an output of this dtype, after one run or more."""
        ...


class Spread:
    """`OutputSpread` by PyTorch's operations. `gpu/tolerance_kernels.py` has another for a GPU."""

    def __init__(self, native: torch.Tensor, reference: torch.Tensor) -> None:
        """native: in the task's dtype. reference: in float64."""
        self._reference = reference
        self._errors = gap(native, reference)
        self._changes: torch.Tensor | None = None

    def add(self, native: torch.Tensor, reference: torch.Tensor, eps: float) -> None:
        torch.maximum(self._errors, gap(native, reference), out=self._errors)
        changes = gap(reference, self._reference).div_(eps)
        if self._changes is None:
            self._changes = changes
        else:
            torch.maximum(self._changes, changes, out=self._changes)

    def tolerance(self, dtype: torch.dtype, reduction_length: int) -> torch.Tensor:
        assert self._changes is not None
        return element_tolerance(
            self._reference, self._errors, self._changes, dtype, reduction_length
        )


def gap(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """|one - other|, flat, in float64, 0 where it is not finite."""
    gap = torch.sub(one.reshape(-1), other.reshape(-1).to(torch.float64)).abs_()
    if len(gap) and not math.isfinite(float(gap.max())):  # one look, where there is nothing to mend
        gap.nan_to_num_(0.0, 0.0, 0.0)
    return gap


def element_tolerance(
    reference: torch.Tensor,
    torch_error: torch.Tensor,
    sensitivity: torch.Tensor,
    dtype: torch.dtype,
    reduction_length: int,
    *,
    coarse: bool = True,
) -> torch.Tensor:
    """The bound of this module for every element of one floating output. coarse: whether the root
    mean square bounds the scale from below.

    reference, torch_error, sensitivity: float64, one shape, the last two 0 or more (where they are
    not finite they count as 0). What the bound is where the reference is not finite says nothing:
    `compare` asks of such elements to be equal in place.
    """
    values, errors, changes = (t.reshape(-1) for t in (reference, torch_error, sensitivity))
    if not values.numel():
        return reference.clone()
    scale = values.abs()
    looks = (torch.linalg.vector_norm(scale), changes.max(), errors.max())
    norm, change, error = torch.stack(looks).tolist()  # one wait for a GPU
    if not math.isfinite(norm):
        norm = float(torch.linalg.vector_norm(scale.nan_to_num_(0.0, 0.0, 0.0)))
    if not math.isfinite(change):
        changes = _finite(changes)
    if not math.isfinite(error):
        errors = _finite(errors)
    tiny, factor = torch.finfo(dtype).tiny, eps_factor(dtype, reduction_length)
    # without the root mean square: what is no normal number may be flushed to zero
    least = max(tiny, norm / math.sqrt(len(values))) if coarse else tiny / factor
    bound = torch.maximum(scale, changes, out=scale).clamp_min_(least)
    table = _largest_of_like_scale(errors, bound).mul_(TORCH_ERROR_FACTOR)
    for part in parts(bound.numel()):
        near = table.index_select(0, _bucket(bound[part]))
        bound[part].mul_(factor).add_(near)
    return bound.reshape(reference.shape)


def _finite(values: torch.Tensor) -> torch.Tensor:
    """|values|, 0 where they are not finite."""
    return values.abs().nan_to_num_(0.0, 0.0, 0.0)


def _bucket(scale: torch.Tensor) -> torch.Tensor:
    """Two octaves each: the exponent of a positive number over 2, from its bits."""
    high = scale.view(torch.int32)[1::2] if _LITTLE else scale.view(torch.int32)[::2]
    return torch.add(high, 1 << 20).bitwise_right_shift_(21)


def _largest_of_like_scale(error: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """For each bucket, the largest error (0 or more) among elements of its scale within about a
    factor of 16: of the bucket itself and the two beside it."""
    worst = error.new_zeros(_BUCKETS + 2)
    for part in parts(error.numel()):
        bucket = _bucket(scale[part]).to(torch.int64).add_(1)
        worst.scatter_reduce_(0, bucket, error[part], "amax")
    return torch.maximum(torch.maximum(worst[:-2], worst[1:-1]), worst[2:])


def compare(
    out: torch.Tensor,
    strides: tuple[int, ...],
    expected: ExpectedOutput,
    find_worst: FindWorst | None = None,
) -> Comparison:
    """Judge one output. `out` has the logical shape that the candidate claims, `strides` its own
    strides in elements. find_worst: compares the numbers where they lie; None: `worst_of`."""
    layout = _layout_difference(out, strides, expected.native)
    if layout:
        return Comparison(False, None, None, None, math.inf, layout)
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0, 0.0)
    if expected.decides is not None:
        out = torch.where(expected.decides, out, expected.native)
    if expected.tolerance is None:
        return _compare_exact(out, expected)
    return _compare_floating(out, expected, find_worst or worst_of)


def wrong_elements(out: torch.Tensor, expected: ExpectedOutput) -> torch.Tensor | None:
    """Which elements of a small output `compare` finds wrong; None where its layout is."""
    if out.dtype is not expected.native.dtype or out.shape != expected.native.shape:
        return None
    reference, native = expected.reference, expected.native
    if expected.tolerance is None:
        wrong = (out != reference) & (out != native)
    else:
        error = (out.to(torch.float64) - reference).abs()
        wrong, *_ = _with_special(out, reference, native, error, expected.tolerance)
    return wrong if expected.decides is None else wrong & expected.decides


def _layout_difference(out: torch.Tensor, strides: tuple[int, ...], native: torch.Tensor) -> str:
    if out.dtype is not native.dtype:
        return f"dtype {_name(out.dtype)}, expected {_name(native.dtype)}"
    if out.shape != native.shape:
        return f"shape {tuple(out.shape)}, expected {tuple(native.shape)}"
    allowed = (_contiguous_strides(tuple(native.shape)), native.stride())
    if out.numel() and not any(same_strides(out.shape, strides, a) for a in allowed):
        return f"strides {strides}, expected {tuple(native.stride())}"
    return ""


def same_strides(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Strides of axes of length 1 mean nothing."""
    return all(n == 1 or a == b for n, a, b in zip(shape, one, other, strict=True))


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return tuple(reversed(strides))


@dataclass(slots=True)
class Worst:
    """What the parts of a comparison come to."""

    wrong: int = 0
    first_wrong: int | None = None
    abs_error: float = 0.0
    rel_error: float = 0.0
    share: float = -1.0
    at: int = 0
    """The element with the largest share of its tolerance."""

    def add_wrong(self, part: slice, wrong: torch.Tensor) -> None:
        """Of one part, in order."""
        count = int(wrong.sum())
        if count and self.first_wrong is None:
            self.first_wrong = part.start + int(wrong.to(torch.uint8).argmax())
        self.wrong += count

    def add_errors(
        self, part: slice, at: float, share: float, abs_error: float, rel_error: float
    ) -> None:
        """What `_largest_errors` found in one part."""
        if share > self.share:
            self.share, self.at = share, part.start + int(at)
        self.abs_error = max(self.abs_error, abs_error)
        self.rel_error = max(self.rel_error, rel_error)


FindWorst = Callable[[torch.Tensor, ExpectedOutput], Worst]
"""How far a floating output that has elements is from what is expected of it."""


def _largest_errors(
    error: torch.Tensor, reference: torch.Tensor, tolerance: torch.Tensor, tiny: float
) -> list[torch.Tensor]:
    """Of errors that are all finite: where the one is that takes the largest share of its
    tolerance, that share, the largest error, and the largest in relation to its reference. tiny:
    the least that an error is put in relation to. Tensors, for one look at all of them."""
    shares = error / tolerance.clamp_min(SMALLEST)
    at = shares.argmax()
    share = shares.take(at)
    relative = torch.div(error, reference.abs().clamp_min_(tiny), out=shares)
    return [at.to(torch.float64), share, error.max(), relative.max()]


def _compare_exact(out: torch.Tensor, expected: ExpectedOutput) -> Comparison:
    """Either the float64 function's integer or that of PyTorch in the task's dtype is right: they
    may differ where an argmax or a comparison ties within rounding."""
    found = Worst()
    if expected.pointed is not None:
        near = expected.pointed.near(out, expected.reference)
        out = torch.where(near, expected.reference, out)
    values, references, natives = (
        t.reshape(-1) for t in (out, expected.reference, expected.native)
    )
    for part in parts(out.numel()):
        value, reference = values[part], references[part]
        wrong = (value != reference) & (value != natives[part])
        difference = (value.to(torch.float64) - reference.to(torch.float64)).abs()
        found.abs_error = max(found.abs_error, float(torch.where(wrong, difference, 0.0).max()))
        found.add_wrong(part, wrong)
    if found.first_wrong is None:
        return Comparison(True, 0.0, 0.0, 0.0)
    detail = _first_wrong(found, out, expected.reference)
    return Comparison(False, found.abs_error, None, 0.0, math.inf, detail)


def _compare_floating(
    out: torch.Tensor, expected: ExpectedOutput, find_worst: FindWorst
) -> Comparison:
    assert expected.tolerance is not None
    found = find_worst(out, expected)
    if found.first_wrong is None and rounds_one_way(out, expected):
        way = "rounded one way, up or down, and PyTorch rounds to the nearest"
        return Comparison(False, found.abs_error, found.rel_error, None, math.inf, f"it is {way}")
    return Comparison(
        found.first_wrong is None,
        found.abs_error,
        found.rel_error,
        float(expected.tolerance.reshape(-1)[found.at]),
        found.share,
        "" if found.first_wrong is None else _first_wrong(found, out, expected.reference),
    )


def rounds_one_way(out: torch.Tensor, expected: ExpectedOutput) -> bool:
    """Whether a result of half precision lies on one side of the function, where PyTorch's lies on
    both: digits that were cut off cost no element more than its last bit."""
    eps = torch.finfo(out.dtype).eps
    if eps <= accumulation_eps(out.dtype) or out.numel() > _MOST_LOOKED_AT:
        return False
    reference = expected.reference.reshape(-1)
    shares = []
    for values in (out, expected.native):
        error = (values.reshape(-1) - reference) * reference.sign()  # in float64
        told = error[error.abs() > _EXACT_SHARE * eps * reference.abs()]
        told = told[torch.isfinite(told)]
        if len(told) < _FEWEST_TOLD:
            return False
        shares.append(float((told < 0).to(torch.float64).mean()))
    own, native = (min(share, 1 - share) for share in shares)
    return own < _ONE_WAY and native > _BOTH_WAYS


def worst_of(out: torch.Tensor, expected: ExpectedOutput) -> Worst:
    """How far a floating output that has elements is from its reference. `gpu/tolerance_kernels.py`
    has the same for a GPU."""
    assert expected.tolerance is not None
    found, tiny = Worst(), torch.finfo(out.dtype).tiny
    values, references, natives, tolerances = (
        t.reshape(-1) for t in (out, expected.reference, expected.native, expected.tolerance)
    )
    for part in parts(out.numel()):
        value, reference, native = values[part], references[part], natives[part]
        error = torch.sub(value, reference).abs_()  # in float64, as the reference is
        tolerance = tolerances[part]
        errors = _largest_errors(error, reference, tolerance, tiny)
        # what is not finite shows in the largest and in the sum; one wait for a GPU
        *largest, total = torch.stack([*errors, native.sum(dtype=torch.float64)]).tolist()
        if math.isfinite(largest[2]) and math.isfinite(total):
            found.add_errors(part, *largest)
            # in float64 a tolerance may be below SMALLEST
            if largest[1] >= 1.0 or out.dtype is torch.float64:
                found.add_wrong(part, ~(error <= tolerance))
        else:
            wrong, error, reference = _with_special(value, reference, native, error, tolerance)
            found.add_wrong(part, wrong)
            errors = _largest_errors(error, reference, tolerance, tiny)
            found.add_errors(part, *torch.stack(errors).tolist())
    return found


def _with_special(
    value: torch.Tensor, reference: torch.Tensor, native: torch.Tensor, error: torch.Tensor,
    tolerance: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """What is wrong, the errors that are finite, and what they are in relation to. Where the
    reference is not finite, or overflowed in the dtype where float64 does not, the value is right
    that is the same there."""
    value, native = value.to(torch.float64), native.to(torch.float64)
    special = ~torch.isfinite(reference) | ~torch.isfinite(native)
    in_place = _same_special(value, reference) | _same_special(value, native)
    close = torch.isfinite(value) & (error <= tolerance)
    finite_error = torch.where(special | ~torch.isfinite(error), 0.0, error)
    wrong = torch.where(special, ~in_place, ~close)
    return wrong, finite_error, torch.where(special, 1.0, reference)


def _same_special(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (torch.isnan(value) & torch.isnan(other)) | (torch.isinf(other) & (value == other))


def _first_wrong(found: Worst, out: torch.Tensor, reference: torch.Tensor) -> str:
    assert found.first_wrong is not None
    flat = found.first_wrong
    index = []
    for n in reversed(out.shape):
        index.append(flat % n)
        flat //= n
    place = tuple(reversed(index))
    got, want = out[place].item(), reference[place].item()
    where = f"[{', '.join(map(str, place))}]"
    return (
        f"first wrong element {where}: got {got:.9g}, expected {want:.9g} "
        f"({found.wrong} of {out.numel()} wrong)"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

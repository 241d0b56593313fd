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
- `scale`: max(|ref|, S, rms(ref)), S the change of `ref` when every input changes by a relative
  rounding, over that rounding. For a sum S is about the root of the sum of squares of its summands,
  so a result that cancels to nothing is judged by what was added up, not by what was left. The root
  mean square over the output gives its small elements the absolute error of its usual ones, as
  every formula with an intermediate of that size has it (tanh by exponentials, log(1 + e^x)).

A fixed 1e-2 lets half precision pass for single; this bound is 30 to 500 times too small for it.
Integer and bool outputs are exact. NaN and infinity are equal in place. Dtype, shape and strides
are exact: contiguous, or the reference's own strides where those are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

_TORCH_ERROR_FACTOR = 8.0
_EPS_FACTOR = 4.0
_SUM_FACTOR = 8.0
_OCTAVES_PER_BUCKET = 2.0
_SMALLEST = 1e-300


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What one output must be. Maker: cuda/reference."""

    reference: torch.Tensor
    """float64 for floating outputs, else the output's own dtype."""
    native: torch.Tensor
    """PyTorch's result in the task's dtype: says dtype, shape and strides."""
    tolerance: torch.Tensor | None
    """Allowed |out - ref| per element, float64; None: exact."""


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


def element_tolerance(
    reference: torch.Tensor,
    torch_error: torch.Tensor,
    sensitivity: torch.Tensor,
    dtype: torch.dtype,
    reduction_length: int,
) -> torch.Tensor:
    """The bound of this module for every element of one floating output.

    reference, torch_error, sensitivity: float64, one shape. Elements that are not finite get the
    bound of zero here; `compare` asks of them to be equal in place.
    """
    tiny = torch.finfo(dtype).tiny
    finite = reference.abs().nan_to_num(0.0, 0.0, 0.0)
    usual = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    scale = torch.maximum(finite, sensitivity.nan_to_num(0.0, 0.0, 0.0)).clamp_min(max(tiny, usual))
    error = torch_error.nan_to_num(0.0, 0.0, 0.0)
    factor = _EPS_FACTOR if reduction_length == 1 else _SUM_FACTOR
    bound = factor * accumulation_eps(dtype) * math.sqrt(reduction_length) * scale
    bound += _TORCH_ERROR_FACTOR * _largest_of_like_scale(error, scale)
    return bound


def _largest_of_like_scale(error: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Each element's largest error among those whose scale is within about a factor of 16."""
    if error.numel() == 0:
        return error
    bucket = (scale.log2() / _OCTAVES_PER_BUCKET).floor().to(torch.int64).reshape(-1)
    bucket -= bucket.min()
    worst = _largest_of_each(error.reshape(-1), bucket + 1, int(bucket.max()) + 3)
    near = torch.maximum(worst[1:-1], torch.maximum(worst[:-2], worst[2:]))
    return near[bucket].reshape(error.shape)


def _largest_of_each(values: torch.Tensor, bucket: torch.Tensor, buckets: int) -> torch.Tensor:
    """The largest of the values, which are 0 or more, in each bucket."""
    worst = values.new_zeros(buckets)
    if not values.is_cuda:
        return worst.scatter_reduce_(0, bucket, values, "amax")
    for i in torch.unique(bucket).tolist():  # a few: all threads would wait for the same atomics
        worst[i] = torch.where(bucket == i, values, 0.0).max()
    return worst


def compare(out: torch.Tensor, strides: tuple[int, ...], expected: ExpectedOutput) -> Comparison:
    """Judge one output. `out` has the logical shape that the candidate claims, `strides` its own
    strides in elements."""
    layout = _layout_difference(out, strides, expected.native)
    if layout:
        return Comparison(False, None, None, None, math.inf, layout)
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0, 0.0)
    if expected.tolerance is None:
        return _compare_exact(out, expected)
    return _compare_floating(out, expected)


def _layout_difference(out: torch.Tensor, strides: tuple[int, ...], native: torch.Tensor) -> str:
    if out.dtype is not native.dtype:
        return f"dtype {_name(out.dtype)}, expected {_name(native.dtype)}"
    if out.shape != native.shape:
        return f"shape {tuple(out.shape)}, expected {tuple(native.shape)}"
    allowed = (_contiguous_strides(tuple(native.shape)), native.stride())
    if out.numel() and not any(_same_strides(out.shape, strides, a) for a in allowed):
        return f"strides {strides}, expected {tuple(native.stride())}"
    return ""


def _same_strides(shape: torch.Size, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Strides of axes of length 1 mean nothing."""
    return all(n == 1 or a == b for n, a, b in zip(shape, one, other, strict=True))


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return tuple(reversed(strides))


def _compare_exact(out: torch.Tensor, expected: ExpectedOutput) -> Comparison:
    """Either the float64 function's integer or that of PyTorch in the task's dtype is right: they
    may differ where an argmax or a comparison ties within rounding."""
    wrong = (out != expected.reference) & (out != expected.native)
    difference = (out.to(torch.float64) - expected.reference.to(torch.float64)).abs()
    worst = float(torch.where(wrong, difference, 0.0).max())
    if not bool(wrong.any()):
        return Comparison(True, 0.0, 0.0, 0.0)
    return Comparison(
        False, worst, None, 0.0, math.inf, _first_wrong(wrong, out, expected.reference)
    )


def _compare_floating(out: torch.Tensor, expected: ExpectedOutput) -> Comparison:
    assert expected.tolerance is not None
    value = out.to(torch.float64)
    reference, native = expected.reference, expected.native.to(torch.float64)
    # Not finite in the reference, or overflowed in the dtype where float64 does not: in place.
    special = ~torch.isfinite(reference) | ~torch.isfinite(native)
    in_place = _same_special(value, reference) | _same_special(value, native)
    error = (value - reference).abs()
    close = torch.isfinite(value) & (error <= expected.tolerance)
    wrong = torch.where(special, ~in_place, ~close)
    finite_error = torch.where(special | ~torch.isfinite(error), 0.0, error)
    relative = finite_error / reference.abs().clamp_min(torch.finfo(out.dtype).tiny)
    shares = (finite_error / expected.tolerance.clamp_min(_SMALLEST)).reshape(-1)
    worst = int(shares.argmax())
    passed = not bool(wrong.any())
    return Comparison(
        passed,
        float(finite_error.max()),
        float(torch.where(special, 0.0, relative).max()),
        float(expected.tolerance.reshape(-1)[worst]),
        float(shares[worst]),
        "" if passed else _first_wrong(wrong, out, reference),
    )


def _same_special(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (torch.isnan(value) & torch.isnan(other)) | (torch.isinf(other) & (value == other))


def _first_wrong(wrong: torch.Tensor, out: torch.Tensor, reference: torch.Tensor) -> str:
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    index = []
    for n in reversed(out.shape):
        index.append(flat % n)
        flat //= n
    place = tuple(reversed(index))
    got, want = out[place].item(), reference[place].item()
    share = int(wrong.sum())
    where = f"[{', '.join(map(str, place))}]"
    return (
        f"first wrong element {where}: got {got:.9g}, expected {want:.9g} "
        f"({share} of {out.numel()} wrong)"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

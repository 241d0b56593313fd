"""Structure that an input must have: recognised in what a problem gives, given to what is drawn.

A kernel may rely on it: a product of triangular matrices need not look at their zeros, a search in
offsets needs them sorted. So it is kept in every draw, and all else about the input varies.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch

from coding_framework.types import Structure

_FEWEST = 4
"""Rows shorter than this are sorted by chance."""

STRUCTURE_WORDS: dict[Structure, str] = {
    "sorted": "sorted along its last axis",
    "offsets": "a row of sorted offsets, from 0 to the end,",
    "permutation": "a permutation along its last axis",
    "upper": "upper triangular",
    "lower": "lower triangular",
    "diagonal": "diagonal",
    "symmetric": "symmetric",
    "positive_definite": "symmetric and positive definite",
    "causal": "1 on and below the diagonal, else 0",
    "future": "1 above the diagonal, else 0",
    "causal_bias": "minus infinity above the diagonal, else 0",
}
"""What is said of an input of each structure."""


def with_structure(
    values: torch.Tensor, structure: Structure | None, high: float | None = None
) -> torch.Tensor:
    """Values of the same shape and dtype that have the structure, made of these where it leaves
    something to draw. high: where offsets end."""
    match structure:
        case None:
            return values
        case "sorted":
            return values.sort(-1).values
        case "offsets":
            made = values.sort(-1).values
            made[..., 0], made[..., -1] = 0, made[..., -1] if high is None else high
            return made
        case "permutation":
            return values.argsort(dim=-1, stable=True).to(values.dtype)
        case "upper":
            return values.triu()
        case "lower":
            return values.tril()
        case "diagonal":
            return values.triu().tril()
        case "symmetric":
            return values.tril() + values.tril(-1).mT
        case "positive_definite":
            return _positive_definite(values)
        case "causal":
            return torch.ones_like(values).tril()
        case "future":
            return torch.ones_like(values).triu(1)
        case "causal_bias":
            return torch.full_like(values, -math.inf).triu(1)


def _positive_definite(values: torch.Tensor) -> torch.Tensor:
    wide = values.to(torch.float64)
    n = max(1, values.shape[-1])
    size = wide.abs().amax((-1, -2), keepdim=True).clamp_min(1e-6)
    wide = wide / size
    made = wide @ wide.mT / n + torch.eye(n, dtype=torch.float64, device=values.device) / 8
    return with_structure(made * size, "symmetric").to(values.dtype)


def structure_of(
    one: torch.Tensor, other: torch.Tensor, extents: Collection[int]
) -> Structure | None:
    """What two draws of an input have in common that is no chance; None: nothing. extents: of all
    inputs, by which offsets are known."""
    if one.shape != other.shape or one.dim() == 0 or one.shape[-1] < _FEWEST or not one.numel():
        return None
    if one.dim() > 1 and one.shape[-1] == one.shape[-2]:
        found = _of_matrix(one, other)
        if found is not None:
            return found
    if one.dtype is torch.bool or any(_is_constant(t) for t in (one, other)):
        return None
    if all(torch.equal(t, t.sort(-1).values) for t in (one, other)):
        whole = not one.is_floating_point() and one.dim() == 1
        ends = whole and int(one[0]) == 0 and int(one[-1]) in extents
        return "offsets" if ends else "sorted"
    if not one.is_floating_point():
        rows = torch.arange(one.shape[-1]).expand(one.shape)
        if all(torch.equal(t.sort(-1).values, rows) for t in (one.long(), other.long())):
            return "permutation"
    return None


def _is_constant(values: torch.Tensor) -> bool:
    return bool((values == values.reshape(-1)[0]).all())


def _is_symmetric(values: torch.Tensor) -> bool:
    """But for rounding: a matrix times its own transpose is."""
    most = float(values.abs().max()) * 16 * torch.finfo(values.dtype).eps
    return bool(((values - values.mT).abs() <= most).all())


def _of_matrix(one: torch.Tensor, other: torch.Tensor) -> Structure | None:
    both = (one, other)
    for fixed in ("causal", "future", "causal_bias"):
        if fixed == "causal_bias" and not one.is_floating_point():
            continue
        if all(torch.equal(t, with_structure(t, fixed)) for t in both):
            return fixed
    if not one.is_floating_point():
        return None
    for drawn in ("diagonal", "upper", "lower"):
        if all(torch.equal(t, with_structure(t, drawn)) and bool(t.any()) for t in both):
            return drawn
    if not all(_is_symmetric(t) for t in both) or any(_is_constant(t) for t in both):
        return None
    least = min(float(torch.linalg.eigvalsh(t.double()).min()) for t in both)
    return "positive_definite" if least > 0 else "symmetric"

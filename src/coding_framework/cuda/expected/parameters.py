"""Parameters that no candidate has seen: a module's initial values say little of those it is used
with.

In two draws of five they have the values that PyTorch initialises them with, and where those are
few, noise around them. In the others they have other signs, zeros among them are filled, and those
of few values (a gate, a slope, the weights of a norm) go from a quarter to four times their size,
and beyond 1. What a module does not take, as its answer is no number, it is not given. Parameters
that are frozen, and buffers, are part of the function: they keep their signs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from coding_framework.cuda.expected.model_calls import call

_SAMPLE, _FEW_VALUES = 1 << 16, 16
"""Elements of a parameter that are looked at, and how many numbers random ones never are."""
_WAYS = ("own", "signs", "below", "own", "above")
"""What becomes of parameters, by the number of the draw: a single number goes far below 0, or above
1."""
_LEAST, _MOST = 0.25, 4.0
_BEYOND = 1.5
"""The least that a parameter of one element is then, in units of its size or 1."""
_HUGE = 1e15
"""An answer beyond it says that the module is not made for such parameters."""


def vary_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that start with few values (a norm's ones and zeros, an identity matrix) would let
    a kernel ignore them: they get noise around their values. So do buffers of one value, which are
    statistics: zeros of either sign, others larger. Other buffers (a mask, a table) are part of the
    function and stay. Returns the parameters of few values."""
    few = []
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and _has_few_values(parameter):
                few.append(parameter)
                noise = torch.randn(parameter.shape).to(parameter.dtype)
                parameter.copy_(parameter * (1 + 0.2 * noise) + 0.1 * noise)
        for name, buffer in model.named_buffers():
            statistic = buffer.numel() > 1 or name.endswith(("running_mean", "running_var"))
            if not statistic or not buffer.is_floating_point():
                continue
            first = buffer.reshape(-1)[0]
            if not bool(torch.isfinite(first)) or not bool((buffer == first).all()):
                continue
            if first == 0:
                buffer.add_(0.5 * torch.randn(buffer.shape).to(buffer.dtype))
            else:
                buffer.mul_(1 + torch.rand(buffer.shape).to(buffer.dtype))
    return few


def _has_few_values(values: torch.Tensor) -> bool:
    """Whether it is a handful of numbers, each of them often: random ones are not."""
    sample = values.detach().reshape(-1)[:_SAMPLE]
    if bool((sample == sample[:1]).all()):
        return True
    different = int(sample.sort().values.diff().ne(0).sum()) + 1
    return different <= min(_FEW_VALUES, len(sample) // 2)


def redraw_parameters(
    model: nn.Module, few: Sequence[nn.Parameter], inputs: tuple[torch.Tensor, ...], seed: int
) -> bool:
    """Give a model's parameters the values of draw `seed`, as far as it takes them; whether they
    have got others than `vary_parameters` left, which found `few`."""
    way = _WAYS[seed % len(_WAYS)]
    trained = [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]
    if way == "own" or not trained:
        return False
    wide = {id(parameter) for parameter in few} if way != "signs" else set()
    with torch.no_grad():
        before = [parameter.clone() for parameter in trained]
        after = [_wide(p, way) if id(p) in wide else _of_other_signs(p) for p in trained]
        one_sign = [torch.copysign(new, old) for new, old in zip(after, before, strict=True)]
        for values in (after, one_sign, before):
            for parameter, value in zip(trained, values, strict=True):
                parameter.copy_(value)
            if values is before or _takes(model, inputs):
                break
    return values is not before


def _usual(values: torch.Tensor) -> float:
    size = float(values.double().square().mean().sqrt()) if values.numel() else 0.0
    return size if size > 0 and math.isfinite(size) else 1.0


def _of_other_signs(values: torch.Tensor) -> torch.Tensor:
    random = torch.randn(values.shape).to(values.dtype)
    return torch.where(values == 0, _usual(values) * random, torch.copysign(values, random))


def _wide(values: torch.Tensor, way: str) -> torch.Tensor:
    one = values.numel() == 1
    least = _BEYOND if one else _LEAST
    spread = torch.rand(values.shape)
    size = (max(_usual(values), 1.0) * least * (_MOST / least) ** spread).to(values.dtype)
    if one:
        return -size if way == "below" else size
    return torch.copysign(size, torch.randn(values.shape).to(values.dtype))


def _takes(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bool:
    try:
        outputs = call(model, inputs)
    except Exception:  # in the model's own words
        return False
    numbers = [t for t in outputs if t.is_floating_point()]
    return all(bool((t.abs() < _HUGE).all()) for t in numbers)

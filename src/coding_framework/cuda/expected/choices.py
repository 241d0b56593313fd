"""What indices point at, and what a cast of no number leaves open.

An index is right where the value that it points at is: two may be equal within rounding, and a
softmax makes such of different ones. Of equal values PyTorch's documents give the first to argmax,
max and min, and any of them to topk and sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from coding_framework.cuda.expected.model_calls import call, call_in_float64
from coding_framework.cuda.expected.tolerance import PointedAt, eps_factor
from coding_framework.reference_model.operations import OperationMode, plain_name

_FIRST = frozenset(("argmax", "argmin", "max", "min"))
_ALL = frozenset(("topk", "sort"))
_COPIES = frozenset(("_to_copy", "clone", "_unsafe_view"))
UNDEFINED_CAST = "a cast of no number"
"""What `Inexact.seen` counts where a number that is none of an integer's becomes one."""


class _Choices(OperationMode):  # type: ignore[no-untyped-call]
    """Notes the rows of numbers that indices point into."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[int, tuple[str, torch.Tensor, torch.Tensor]] = {}
        self._alive: list[torch.Tensor] = []  # an id means nothing without its object

    def of(self, output: torch.Tensor) -> tuple[str, torch.Tensor, torch.Tensor] | None:
        """The operation that chose, the rows that it chose from, and of each index its row; None
        where the output is no indices, or they were changed."""
        return self._found.get(id(output))

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = plain_name(func)
        if name in _FIRST | _ALL and isinstance(args[0], torch.Tensor) and args[0].dim():
            indices = result[1] if isinstance(result, tuple) else result
            if indices.dtype is torch.int64 and not kwargs.get("stable"):
                self._note(indices, name, *_rows(name, args, kwargs, indices))
        elif args and id(args[0]) in self._found and isinstance(result, torch.Tensor):
            chose, values, rows = self._found[id(args[0])]
            if func.is_view:
                self._note(result, chose, values, func(rows, *args[1:], **kwargs))
            elif name in _COPIES and not result.is_floating_point():
                self._note(result, chose, values, rows.reshape(result.shape))
        return result

    def _note(
        self, indices: torch.Tensor, name: str, values: torch.Tensor, rows: torch.Tensor
    ) -> None:
        self._alive.append(indices)
        self._found[id(indices)] = (name, values, rows)


def _rows(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    x = args[0]
    place = 2 if name == "topk" else 1
    usual = None if name in ("argmax", "argmin") else -1
    axis = args[place] if len(args) > place else kwargs.get("dim", usual)
    if axis is None:
        return x.reshape(1, -1), torch.zeros_like(indices)
    values = x.movedim(axis, -1)
    rows = torch.arange(values[..., 0].numel(), device=x.device).reshape(values.shape[:-1])
    if indices.dim() == x.dim():
        rows = rows.unsqueeze(axis).expand(indices.shape)
    return values.reshape(-1, values.shape[-1]), rows


def pointed_at(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    native: Sequence[torch.Tensor],
    reduction_length: int,
) -> list[PointedAt | None]:
    """Of each output what its elements point at; None where they are no indices."""
    if all(output.dtype not in (torch.int64, torch.int32) for output in native):
        return [None] * len(native)
    own, wide = _Choices(), _Choices()
    with own:
        outputs = call(model, inputs)
    references = call_in_float64(model, inputs, wide)
    found: list[PointedAt | None] = []
    for output, reference in zip(outputs, references, strict=True):
        ours, theirs = own.of(output), wide.of(reference)
        if ours is None or theirs is None or not theirs[1].numel():
            found.append(None)
            continue
        name, values, rows = theirs
        error = torch.nan_to_num((ours[1].to(torch.float64) - values).abs(), 0.0, 0.0, 0.0)
        allowed = 8 * error.amax(1)
        if ours[1].is_floating_point() and bool(error.any()):
            size = torch.nan_to_num(values.abs(), 0.0, 0.0, 0.0).amax(1)
            allowed += eps_factor(ours[1].dtype, reduction_length) * size
        found.append(PointedAt(values.to(torch.float64), allowed, rows, name in _ALL))
    return found


class _Filled(OperationMode):  # type: ignore[no-untyped-call]
    """A cast of no number gives this one."""

    def __init__(self, fill: int) -> None:
        super().__init__()
        self._fill = fill

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        undefined = undefined_cast(plain_name(func), args, result)
        return result if undefined is None else result.masked_fill(undefined, self._fill)


def undefined_cast(name: str, args: tuple[Any, ...], result: Any) -> torch.Tensor | None:
    """Where an operation makes an integer of what is none of its numbers; None: nowhere."""
    if name != "_to_copy" or result.is_floating_point() or result.dtype is torch.bool:
        return None
    if not args[0].is_floating_point():
        return None
    ends = torch.iinfo(result.dtype)
    within = (args[0] > ends.min - 1.0) & (args[0] < ends.max + 1.0)
    return None if bool(within.all()) else ~within


def open_elements(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Of each output the elements that depend on what a cast of no number gives."""

    def filled(fill: int) -> AbstractContextManager[object]:
        return _Filled(fill)

    ones, others = (call_in_float64(model, inputs, filled(fill)) for fill in (0, 1))
    pairs = zip(ones, others, strict=True)
    return [~((a == b) | ((a != a) & (b != b))) for a, b in pairs]

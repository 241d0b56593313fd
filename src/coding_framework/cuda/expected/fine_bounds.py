"""What must come out of one draw of a small shape set, with a bound for each element of its own.

The bound of `tolerance.py`, whose S here is what rounding can lose in the element's own computation
(`rounding.py`), and without the root mean square of the output: where elements are independent, a
small one gets nothing from a large one. Results of half precision may be off by the last bit of the
scale.

Of an edge draw an element decides only where PyTorch's own result agrees with the float64 one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from coding_framework.cuda.expected.choices import UNDEFINED_CAST, open_elements, pointed_at
from coding_framework.cuda.expected.edge_draws import EdgeKind
from coding_framework.cuda.expected.model_calls import (
    call,
    call_in_float64,
    perturbed,
    rounding_unit,
)
from coding_framework.cuda.expected.rounding import BY_INDEX, TEXTBOOK, UNDEFINED_TIES, Inexact
from coding_framework.cuda.expected.tf32 import RUNS, in_tf32
from coding_framework.cuda.expected.tolerance import (
    ExpectedOutput,
    PointedAt,
    Spread,
    accumulation_eps,
    element_tolerance,
    eps_factor,
    gap,
)

_AGREES = 16.0
"""PyTorch's result agrees within so many times what a candidate is allowed."""
_TEXTBOOK_LOSS = 64.0
"""A textbook form may lose what belongs to a result so many times the usual one: `tanh` by
exponentials keeps no digit of a tiny result, which nobody sees, but tanh(x) / x does not."""
_MOST_OPERATIONS = 600
"""Of a model: each takes some 30 microseconds more where its rounding is tried. Above it one such
run is made, and the root mean square of the output bounds its small elements as well."""


def finely_expected(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    reduction_length: int,
    runs: int,
    edge: EdgeKind | None,
    tf32: bool = False,
) -> tuple[ExpectedOutput, ...]:
    """runs: in which each operation is inexact; more never draw others than fewer. tf32: whether
    products may be."""
    native = call(model, inputs)
    reference = call_in_float64(model, inputs)
    bounds = [
        _Bound(n, r, reduction_length) if n.is_floating_point() else None
        for n, r in zip(native, reference, strict=True)
    ]
    if edge is None:
        _add_errors(bounds, model, inputs)
    for run in range(RUNS if tf32 else 0):
        rough = in_tf32(model, inputs, reference, run)
        for bound, n, r in zip(bounds, rough, reference, strict=True):
            if bound is not None:
                bound.add_rough(n, r)
    operations, coarse = _add_changes(bounds, model, inputs, runs, edge, reduction_length)
    small = edge is None and bool(operations.keys() & TEXTBOOK)
    most = [b.beyond() if small and b is not None else None for b in bounds]
    if any(m is not None for m in most):
        strict = [
            _Bound(n, r, reduction_length) if n.is_floating_point() else None
            for n, r in zip(native, reference, strict=True)
        ]
        _add_changes(strict, model, inputs, runs, edge, reduction_length, textbook=False)
        for bound, m, s in zip(bounds, most, strict, strict=True):
            if bound is not None and m is not None and s is not None:
                bound.keep_below(m, s.changes)
    pointed = pointed_at(model, inputs, native, reduction_length)
    ties = edge == "ties" and _ties_are_undefined(operations, native, pointed)
    outputs = [
        _output(n, r, b, coarse, edge, ties, p)
        for n, r, b, p in zip(native, reference, bounds, pointed, strict=True)
    ]
    if operations[UNDEFINED_CAST]:
        told = open_elements(model, inputs)
        outputs = [_without(o, free) for o, free in zip(outputs, told, strict=True)]
    return tuple(outputs)


def _without(output: ExpectedOutput, free: torch.Tensor) -> ExpectedOutput:
    """The output, of which `free` elements decide nothing."""
    if not bool(free.any()):
        return output
    decides = ~free if output.decides is None else output.decides & ~free
    return replace(output, decides=decides)


class _Bound(Spread):
    """`Spread` whose errors and changes come of runs of their own."""

    def __init__(
        self, native: torch.Tensor, reference: torch.Tensor, reduction_length: int
    ) -> None:
        super().__init__(native, reference)
        self._native = native
        self._length = reduction_length
        self._changes = torch.zeros_like(self._errors)
        self._rough = torch.zeros_like(self._errors)

    @property
    def changes(self) -> torch.Tensor:
        assert self._changes is not None
        return self._changes

    def add_errors(self, native: torch.Tensor, reference: torch.Tensor) -> None:
        torch.maximum(self._errors, gap(native, reference), out=self._errors)

    def add_rough(self, native: torch.Tensor, reference: torch.Tensor) -> None:
        """An error that a candidate may make and PyTorch's own result does not."""
        torch.maximum(self._rough, gap(native, reference), out=self._rough)

    def add_changes(self, reference: torch.Tensor, eps: float) -> None:
        assert self._changes is not None
        changes = gap(reference, self._reference).div_(eps)
        self._changes = torch.maximum(self._changes, changes)

    def beyond(self) -> torch.Tensor | None:
        """What rounding alone may change where textbook forms lose more than they may; None where
        they do nowhere."""
        assert self._changes is not None
        size = torch.nan_to_num(self._reference.abs().reshape(-1), 0.0, 0.0, 0.0)
        usual = torch.linalg.vector_norm(size) / math.sqrt(max(1, len(size)))
        most = size.clamp_min(float(usual)).mul_(_TEXTBOOK_LOSS)
        return most if bool((self._changes > most).any()) else None

    def keep_below(self, most: torch.Tensor, changes: torch.Tensor) -> None:
        """changes: as the bound's own, without textbook forms."""
        self._changes = torch.minimum(self.changes, torch.maximum(most, changes))

    def finish(self, coarse: bool, edge: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The bound of each element, and for an edge draw which of them decide."""
        assert self._changes is not None
        dtype, reference = self._native.dtype, self._reference
        scale = torch.maximum(reference.abs().reshape(-1), self._changes)
        agrees = lost = None
        if edge:
            agrees = torch.isfinite(reference) & torch.isfinite(self._native)
            room = _AGREES * (eps_factor(dtype, self._length) + torch.finfo(dtype).eps)
            agrees &= (self._errors <= room * scale).reshape(reference.shape)
            lost = self._errors * ~agrees.reshape(-1)
            self._errors -= lost
        torch.maximum(self._errors, self._rough, out=self._errors)
        bound = element_tolerance(
            reference, self._errors, self._changes, dtype, self._length, coarse=coarse
        )
        if lost is not None:  # what decides nothing is taken from PyTorch, and must pass
            bound = torch.maximum(bound, lost.reshape(bound.shape))
        if torch.finfo(dtype).eps > accumulation_eps(dtype):
            last_bit = torch.nan_to_num(scale, 0.0, 0.0, 0.0) * torch.finfo(dtype).eps
            bound += last_bit.reshape(bound.shape)
        return bound, agrees


def _add_errors(
    bounds: Sequence[_Bound | None], model: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    """PyTorch's errors on inputs that rounding moved."""
    moved = perturbed(model, inputs, rounding_unit(inputs))
    native, reference = call(*moved), call_in_float64(*moved)
    for bound, n, r in zip(bounds, native, reference, strict=True):
        if bound is not None:
            bound.add_errors(n, r)


def _add_changes(
    bounds: Sequence[_Bound | None],
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    runs: int,
    edge: EdgeKind | None,
    reduction_length: int,
    *,
    textbook: bool = True,
) -> tuple[Counter[str], bool]:
    """What rounding changes: the operations that there are, and whether they were too many. They
    are off by as much as a sum of that length may be: the square of an error is no error of the
    same share."""
    eps = eps_factor(torch.float32, reduction_length)
    if any(t.dtype is torch.float64 for t in inputs):
        eps = 4 * accumulation_eps(torch.float64) ** 0.5  # less would vanish in float64 itself
    operations: Counter[str] = Counter()
    for run in range(runs):
        block, place = divmod(run, 6)
        # three runs, then the same the other way: a minimum shows a change in one direction alone
        way = eps if place < 3 else -eps
        inexact = Inexact(
            way, 3 * block + place % 3, decides_beyond=edge is None, textbook=textbook
        )
        changed = call_in_float64(model, inputs, inexact)
        for bound, reference in zip(bounds, changed, strict=True):
            if bound is not None:
                bound.add_changes(reference, eps)
        operations = inexact.seen
        if operations.total() > _MOST_OPERATIONS:
            return operations, True
    return operations, False


def _ties_are_undefined(
    operations: Counter[str],
    outputs: Sequence[torch.Tensor],
    pointed: Sequence[PointedAt | None],
) -> bool:
    """Whether an answer may depend on which of two equal elements an operation takes, where no
    index says which."""
    chosen = operations.keys() & UNDEFINED_TIES
    whole = [p for t, p in zip(outputs, pointed, strict=True) if not t.is_floating_point()]
    told = None in whole or operations.keys() & BY_INDEX
    return bool(chosen and told)


def _output(
    native: torch.Tensor,
    reference: torch.Tensor,
    bound: _Bound | None,
    coarse: bool,
    edge: EdgeKind | None,
    ties: bool,
    pointed: PointedAt | None,
) -> ExpectedOutput:
    if bound is None:
        tolerance, decides = None, native == reference if edge is not None else None
        if decides is not None and pointed is not None:
            decides |= pointed.near(native, reference)
    else:
        tolerance, decides = bound.finish(coarse, edge is not None)
    if decides is not None and ties:
        decides = torch.zeros_like(decides)
    if decides is not None and bool(decides.all()):
        decides = None
    return ExpectedOutput(reference, native, tolerance, decides, pointed)

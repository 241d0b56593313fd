"""What only a run can say of a problem: which input values it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coding_framework.data.kernelbench.constants import Values, run_module
from coding_framework.data.kernelbench.sizes import as_tensors
from coding_framework.types import Structure

if TYPE_CHECKING:
    import torch

Bounds = tuple[float | None, float | None]

_HUGE = 1e15
"""Outputs beyond this say that the model is not made for such inputs (a product of 500 values)."""


_MOST_APART = 2
_MOST_DRAWS = 8


@dataclass(frozen=True, slots=True)
class Domain:
    """What an input may be."""

    low: float | None
    high: float | None
    keeps: Structure | None = None


def input_domains(tree: ast.Module, values: Values) -> list[Domain]:
    """Of each input the structure of the problem's own draws at these sizes, and its bounds: none
    where the model stays finite on values of both signs, else those of its own draws. Raises
    whatever the problem raises."""
    import torch

    from coding_framework.reference_model.structures import structure_of, with_structure

    pairs = list(zip(*(own_inputs(tree, values, seed) for seed in range(2)), strict=True))
    extents = {extent for one, _ in pairs for extent in one.shape}
    kept = [structure_of(one, other, extents) for one, other in pairs]
    with _own_draws(), torch.no_grad():
        model, inputs = _instance(tree, values)
        moved = [with_structure(_of_both_signs(t), s) for t, s in zip(inputs, kept, strict=True)]
        if _stays_finite(model, moved):
            return [Domain(None, None, s) for s in kept]
        as_tensors(model(*(t.clone() for t in inputs)))  # the problem's own failure is told
        domains = []
        for i, own in enumerate(inputs):
            low, high = _range(own)
            alone = [*inputs[:i], moved[i], *inputs[i + 1 :]]  # a tensor of ones beside a logarithm
            free = low == high and own.is_floating_point() and _stays_finite(model, alone)
            bounds = (None, None) if free else (low, high)
            domains.append(Domain(*bounds, kept[i]))
    return domains


def _of_both_signs(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if not tensor.is_floating_point():
        return tensor
    return (3.0 * torch.randn(tensor.shape) - 1.0).to(tensor.dtype)


def _stays_finite(model: Any, inputs: list[torch.Tensor]) -> bool:
    """False too where the model refuses such values."""
    try:
        outputs = as_tensors(model(*(t.clone() for t in inputs)))
    except Exception:  # in the model's own words
        return False
    numbers = [t for t in outputs if t.is_floating_point()]
    return all(bool((t.abs() < _HUGE).all()) for t in numbers)


def _takes(tree: ast.Module, values: Values, number: int, low: int, high: int) -> bool:
    """Whether the model gives numbers where the input of this number has any of low to high, and
    one value alone."""
    import torch

    with _own_draws(), torch.no_grad():
        model, inputs = _instance(tree, values)
        own = inputs[number]
        drawn = torch.randint(low, high + 1, own.shape).to(own.dtype)
        tried = [drawn, torch.full_like(own, low), torch.full_like(own, high)]
        return all(
            _stays_finite(model, [*inputs[:number], one, *inputs[number + 1 :]]) for one in tried
        )


def own_inputs(
    tree: ast.Module, values: Values, seed: int = 0, *, end: Literal["low", "high"] | None = None
) -> list[torch.Tensor]:
    """Each input as the problem itself draws it at these sizes. end: with that end of its range for
    all that `randint` draws."""
    namespace = run_module(tree, values)
    with _own_draws(seed), _at_an_end(end):
        return list(namespace["get_inputs"]())


def _at_an_end(end: str | None) -> Any:
    """A torch mode in which `randint` gives one end of its range."""
    from torch.overrides import TorchFunctionMode

    class AtAnEnd(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = kwargs or {}
            result = func(*args, **named)
            if getattr(func, "__name__", "") != "randint" or end is None:
                return result
            numbers = [a for a in args if isinstance(a, int)]
            if end == "low":
                return result.fill_(named.get("low", numbers[0] if len(numbers) > 1 else 0))
            return result.fill_(named.get("high", numbers[-1] if numbers else 2) - 1)

    return AtAnEnd()


@dataclass(frozen=True, slots=True)
class Integers:
    """What an input of whole numbers may be."""

    low: float
    high: float
    apart: tuple[int, ...] = ()
    """One or two numbers outside that it has beside them."""


def integers_of(tree: ast.Module, values: Values, number: int) -> Integers:
    """Of the input of this number. What `randint` draws differs between the two ends of its range,
    and all else does not. Of several draws it is what all of them may be, or the first; where
    nothing was drawn, the least and the largest that the problem itself gives."""
    try:
        low, high = (own_inputs(tree, values, end=end)[number] for end in ("low", "high"))
        drawn = low < high
        ranges = set(zip(low[drawn].tolist(), high[drawn].tolist(), strict=True))
    except Exception:  # of theirs, as where a length is drawn
        ranges = set()
    if 0 < len(ranges) <= _MOST_DRAWS:  # more are sums of draws, or what comes of other numbers
        ends = low[drawn].max(), high[drawn].min()
        least, most = map(int, ends if ends[0] <= ends[1] else (low[drawn][0], high[drawn][0]))
        fixed = low[~drawn]
        apart = np.unique(fixed[(fixed < least) | (fixed > most)].numpy())
        if len(apart) <= _MOST_APART:
            return Integers(float(least), float(most), tuple(map(int, apart)))
    seen = own_inputs(tree, values)[number]
    if not seen.numel():
        return Integers(0.0, 1.0)
    least, most = int(seen.min()), int(seen.max())
    if least == most > 0 and seen.numel() > 1:  # full lengths, a mask of ones
        free = (n for n in (0, 1) if n < most and _takes(tree, values, number, n, most))
        least = next(free, most)
    return Integers(float(least), float(most))


def _range(tensor: torch.Tensor) -> Bounds:
    return (float(tensor.min()), float(tensor.max())) if tensor.numel() else (None, None)


_STEADY = 0.0001
"""Error in float32, over the deviation of a result's elements, or over the one number it gives."""
_STEADY_DRAWS = 5
"""A few are steady by luck. A tolerance is some fifty times the worst of them."""


def run_once(tree: ast.Module, values: Values) -> None:
    """Run the problem as it stands, at these sizes. Raises whatever it raises."""
    import torch

    with _own_draws(), torch.no_grad():
        model, inputs = _instance(tree, values)
        as_tensors(model(*inputs))


def is_steady(tree: ast.Module, values: Values) -> bool:
    """Whether rounding to float32 changes little of what the problem gives at these sizes; so it
    is where it does not run in float64."""
    try:
        return all(_is_steady(tree, values, seed) for seed in range(_STEADY_DRAWS))
    except Exception:
        return True


def _is_steady(tree: ast.Module, values: Values, seed: int) -> bool:
    import torch

    with _own_draws(seed), torch.no_grad():
        model, inputs = _instance(tree, values)
        floating = [torch.is_tensor(t) and t.is_floating_point() for t in inputs]
        exact = [t.double() if f else deepcopy(t) for t, f in zip(inputs, floating, strict=True)]
        given = as_tensors(model(*inputs))
        wanted = as_tensors(model.double()(*exact))
    pairs = [(g.double(), w) for g, w in zip(given, wanted, strict=True) if g.is_floating_point()]
    return all(
        float((g - w).abs().amax()) <= _STEADY * float(w.std(correction=0) or w.abs().amax())
        for g, w in pairs
    )


@contextmanager
def _own_draws(seed: int = 0) -> Iterator[None]:
    """The same draws each time, none taken from the caller's generator. One thread: a problem runs
    in a few small operations, where the barriers of many threads cost more than they save."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _instance(tree: ast.Module, values: Values) -> tuple[Any, list[torch.Tensor]]:
    from coding_framework.reference_model import constructor_arguments

    namespace = run_module(tree, values)
    arguments = constructor_arguments(namespace)
    return namespace["Model"](*arguments), namespace["get_inputs"]()

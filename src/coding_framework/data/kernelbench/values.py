"""What only a run can say of a problem: which input values it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coding_framework.data.kernelbench.constants import Values, run_module
from coding_framework.data.kernelbench.sizes import as_tensors

if TYPE_CHECKING:
    import torch

Bounds = tuple[float | None, float | None]

_HUGE = 1e15
"""Outputs beyond this say that the model is not made for such inputs (a product of 500 values)."""


def input_bounds(tree: ast.Module, values: Values) -> list[Bounds]:
    """Bounds of each input: none where the model stays finite on values of both signs, else those
    of the problem's own draws at these sizes. Raises whatever the problem raises."""
    import torch

    with _own_draws(), torch.no_grad():
        model, inputs = _instance(tree, values)
        moved = [_of_both_signs(t) for t in inputs]
        if _stays_finite(model, moved):
            return [(None, None)] * len(inputs)
        as_tensors(model(*(t.clone() for t in inputs)))  # the problem's own failure is told
        bounds: list[Bounds] = []
        for i, own in enumerate(inputs):
            low, high = _range(own)
            alone = [*inputs[:i], moved[i], *inputs[i + 1 :]]  # a tensor of ones beside a logarithm
            free = low == high and own.is_floating_point() and _stays_finite(model, alone)
            bounds.append((None, None) if free else (low, high))
    return bounds


def _of_both_signs(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if not tensor.is_floating_point():
        return tensor
    return (3.0 * torch.randn(tensor.shape) - 1.0).to(tensor.dtype)


def _stays_finite(model: Any, inputs: list[torch.Tensor]) -> bool:
    """False too where the model refuses such values."""
    import torch

    try:
        outputs = as_tensors(model(*(t.clone() for t in inputs)))
    except Exception:  # in the model's own words
        return False
    return all(
        bool((torch.isfinite(t) & (t.to(torch.float64).abs() < _HUGE)).all()) for t in outputs
    )


def own_inputs(tree: ast.Module, values: Values) -> list[torch.Tensor]:
    """Each input as the problem itself draws it at these sizes."""
    with _own_draws():
        return list(run_module(tree, values)["get_inputs"]())


def _range(tensor: torch.Tensor) -> Bounds:
    return (float(tensor.min()), float(tensor.max())) if tensor.numel() else (None, None)


def run_once(tree: ast.Module, values: Values) -> None:
    """Run the problem as it stands, at these sizes. Raises whatever it raises."""
    import torch

    with _own_draws(), torch.no_grad():
        model, inputs = _instance(tree, values)
        as_tensors(model(*inputs))


@contextmanager
def _own_draws() -> Iterator[None]:
    """The same draws each time, none taken from the caller's generator. One thread: a problem runs
    in a few small operations, where the barriers of many threads cost more than they save."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)


def _instance(tree: ast.Module, values: Values) -> tuple[Any, list[torch.Tensor]]:
    from coding_framework.reference_model import constructor_arguments

    namespace = run_module(tree, values)
    arguments = constructor_arguments(namespace)
    return namespace["Model"](*arguments), namespace["get_inputs"]()

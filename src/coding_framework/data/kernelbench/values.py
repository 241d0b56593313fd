"""What only a run can say of a problem: which input values it takes, how long its sums are."""

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
        moved = [3.0 * torch.randn(t.shape) - 1.0 if t.is_floating_point() else t for t in inputs]
        outputs = as_tensors(model(*moved))
    if all(bool((torch.isfinite(t) & (t.abs() < _HUGE)).all()) for t in outputs):
        return [(None, None)] * len(inputs)
    return [(float(t.min()), float(t.max())) if t.numel() else (None, None) for t in inputs]


def reduction_length(tree: ast.Module, values: Values) -> int:
    """How many elements of one input or weight an output element adds up, at these sizes.

    Found by differentiation: the non-zero derivatives of a few output elements. 1 for elementwise
    functions and for outputs without derivatives. A model may change its tensors in place. Raises
    whatever the problem raises.
    """
    from torch.autograd.graph import allow_mutation_on_saved_tensors

    with _own_draws(), allow_mutation_on_saved_tensors():
        model, inputs = _instance(tree, values)
        leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in inputs]
        outputs = as_tensors(model(*(t.clone() for t in leaves)))
        sources = [t for t in leaves if t.requires_grad] + list(model.parameters())
        longest = 1
        for output in outputs:
            if output.requires_grad and output.numel():
                longest = max(longest, *(_terms(e, sources) for e in _samples(output)))
    return longest


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


def _samples(output: torch.Tensor) -> list[torch.Tensor]:
    """The first, middle, last and largest element: one of them is past every padding."""
    flat = output.reshape(-1)
    places = {0, flat.numel() // 2, flat.numel() - 1, int(flat.abs().argmax())}
    return [flat[place] for place in sorted(places)]


def _terms(element: torch.Tensor, sources: list[torch.Tensor]) -> int:
    import torch

    if not sources:
        return 1
    gradients = torch.autograd.grad(element, sources, retain_graph=True, allow_unused=True)
    return max((int(g.count_nonzero()) for g in gradients if g is not None), default=1)


def _instance(tree: ast.Module, values: Values) -> tuple[Any, list[torch.Tensor]]:
    namespace = run_module(tree, values)
    return namespace["Model"](*namespace["get_init_inputs"]()), namespace["get_inputs"]()

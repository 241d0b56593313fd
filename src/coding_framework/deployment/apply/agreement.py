"""Whether a kernel's outputs are those of the function that it stands for, by the judge's bound.

As `cuda/expected` has it for shape sets of real size, for a function that is called in a program at
work: nothing global is touched, neither PyTorch's random numbers nor its default dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from coding_framework.cuda.expected.model_calls import rounding_unit
from coding_framework.cuda.expected.tolerance import ExpectedOutput, Spread, compare

Function = Callable[..., Any]
_SEED = 1


def as_outputs(result: Any) -> tuple[torch.Tensor, ...]:
    """What a function returned, as a tuple."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def disagreement(
    function: Function,
    arguments: Sequence[Any],
    native: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    reduction_length: int,
    in_float64: Function | None = None,
) -> str | None:
    """A sentence if `outputs` are not those of the function; None if they agree.

    native: the function's outputs on `arguments`. reduction_length: terms in its longest sum.
    in_float64: the same function where its own numbers have to be in float64 too; None: it has
    none.
    """
    wide = in_float64 or function

    def in_both(given: Sequence[Any], result: Sequence[Any] | None = None) -> tuple[Any, Any]:
        """Outputs in the dtypes of the arguments, and in float64."""
        narrow = as_outputs(function(*given)) if result is None else tuple(result)
        try:
            exact = as_outputs(wide(*map(_wide, given)))
        except (RuntimeError, TypeError):  # it has numbers of its own in another dtype
            exact = narrow
        return narrow, tuple(map(_wide, exact))

    devices = [t.get_device() for t in arguments if isinstance(t, torch.Tensor) and t.is_cuda]
    with (
        torch.no_grad(),
        torch.autocast(_device_type(arguments), enabled=False),
        torch.random.fork_rng(devices=sorted(set(devices))),
    ):
        _, reference = in_both(arguments, native)
        eps = rounding_unit([a for a in arguments if isinstance(a, torch.Tensor)])
        moved_native, moved_reference = in_both(_moved(arguments, eps))
        for i, (n, r, out) in enumerate(zip(native, reference, outputs, strict=True)):
            tolerance = None
            if n.is_floating_point():
                spread = Spread(n, r)
                spread.add(moved_native[i], moved_reference[i], eps)
                tolerance = spread.tolerance(n.dtype, reduction_length).to(n.device)
            found = compare(out.detach(), out.stride(), ExpectedOutput(r, n, tolerance))
            if not found.passed:
                return found.detail if len(outputs) == 1 else f"output {i}: {found.detail}"
    return None


def _device_type(arguments: Sequence[Any]) -> str:
    return next((a.device.type for a in arguments if isinstance(a, torch.Tensor)), "cpu")


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().to(torch.float64)
    return value


def _moved(arguments: Sequence[Any], eps: float) -> list[Any]:
    """Every floating number times 1 + eps or 1 - eps, by coins of a generator of our own."""

    def move(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        coins = torch.Generator(value.device).manual_seed(_SEED)
        coin = torch.empty(value.shape, device=value.device).bernoulli_(generator=coins)
        return (value.detach() * coin.mul_(2 * eps).add_(1 - eps)).to(value.dtype)

    return [move(argument) for argument in arguments]

"""torch.nn.functional: every function computes, so calling one ends the run as `rejected`."""

from __future__ import annotations

from typing import Any

from .._names import look_up


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Nothing where it drops nothing."""
    if p == 0 or not training:
        return input
    return look_up("torch.nn.functional", "dropout", "")(input)


def __getattr__(name: str) -> Any:
    return look_up("torch.nn.functional", name, "module 'torch.nn.functional'")

"""torch.nn: torch's own modules, and no arithmetic."""

from __future__ import annotations

from typing import Any

from . import functional, init, parameter
from .parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "parameter"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    from ._modules import layer  # torch's own, which need this package whole

    made = layer(name)
    globals()[name] = made
    return made

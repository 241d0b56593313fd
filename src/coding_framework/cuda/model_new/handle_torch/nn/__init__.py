"""torch.nn: modules with the members that torch's have, and no arithmetic."""

from __future__ import annotations

from typing import Any

from . import functional, init, parameter
from ._layers import layer
from ._module import *  # noqa: F403 - torch.nn has them in one namespace
from ._module import Module, Parameter

__all__ = ["Module", "Parameter", "functional", "init", "parameter"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    made = layer(name)
    globals()[name] = made
    return made

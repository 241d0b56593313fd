"""How a reference model is made and called: what is asked of a `ModelNew` too."""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.types import InitArg


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """Maker: the reference, for one shape set. Consumer: the host process of an answer."""

    init_args: tuple[InitArg, ...]
    parameter_names: tuple[str, ...]
    """Of the tensors that follow the inputs, as in `state_dict`."""
    scalar_positions: tuple[int, ...] = ()
    """Where the problem's own `forward` takes the numbers that end `init_args`."""

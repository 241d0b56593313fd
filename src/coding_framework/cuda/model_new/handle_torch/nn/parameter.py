"""torch.nn.parameter"""

from __future__ import annotations

from typing import Any

from .._handle import make
from .._tensor import Tensor
from .._types import BY_NAME


class Parameter(Tensor):
    """A tensor that a module counts among its parameters. Shares the values it was made of."""

    requires_grad = True

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        if data is None:
            data = make([0], BY_NAME["float32"], None, "torch.empty", None)
        self._take(data.detach())
        self.requires_grad = requires_grad

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return type(self)(self.clone(), self.requires_grad)


class Buffer(Tensor):
    """A tensor that a module counts among its buffers."""

    def __init__(self, data: Tensor, *, persistent: bool = True) -> None:
        self._take(data.detach())
        self.persistent = persistent


class UninitializedParameter(Parameter):
    """Of lazy layers, which are not here."""


UninitializedBuffer = UninitializedParameter


def is_lazy(parameter: object) -> bool:
    return False

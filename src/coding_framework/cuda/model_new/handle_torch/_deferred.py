"""Tensors made before the judge has given any memory: weights, buffers, tables of `__init__`.

While an answer is imported and `ModelNew` is built, a new tensor is only a shape, a dtype and a
word on where its values would come from. Its memory comes when it is first used: that of the
reference's parameter which it stands for, or memory of its own where its values are known without
computing. Anything else was computed by torch, and using it ends as `rejected`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import _host
from ._types import DType

if TYPE_CHECKING:
    from ._tensor import Tensor


class State:
    """Where the answer is in its life."""

    constructing = True
    """True while the file is imported and ModelNew is built."""


class Deferred:
    """The values of one tensor, and of all views of it, that are not there yet."""

    def __init__(
        self,
        shape: tuple[int, ...],
        of: DType,
        origin: str,
        *,
        fill: float | None = None,
        values: list[bool | int | float] | None = None,
        parent: Tensor | None = None,
        on_cuda: bool = False,
    ) -> None:
        """origin: the torch function that would make the values. fill, values: what they are where
        that is known; parent: the contiguous tensor whose copy they are."""
        self.shape = shape
        self.dtype = of
        self.origin = origin
        self.fill = fill
        self.values = values
        self.parent = parent
        self.on_cuda = on_cuda
        self.owner: Tensor | None = None

    def changed(self, view: Tensor, of: DType, on_cuda: bool) -> Deferred:
        """The values of one view of these, elsewhere or as another type."""
        shape = tuple(view.shape)
        whole = view.is_contiguous() and math.prod(shape) == math.prod(self.shape)
        return Deferred(
            shape,
            of,
            self.origin,
            fill=self.fill,
            values=self.values if whole else None,
            parent=self.parent if whole and of is self.dtype else None,
            on_cuda=on_cuda,
        )

    def bind(self, owner: Tensor) -> None:
        """The values are those of this tensor, which the judge put on the device."""
        self.owner = owner
        self.on_cuda = True

    def forget(self, origin: str) -> None:
        """The values were changed by a torch function."""
        self.origin, self.fill, self.values, self.parent = origin, None, None, None

    def memory(self) -> Tensor:
        """The tensor whose memory this is: contiguous, in this shape. Ends the process where the
        values would have to be computed."""
        if self.owner is None:
            self.owner = self._materialised()
        return self.owner

    def _materialised(self) -> Tensor:
        from ._handle import from_values, new_empty, resolved

        made: Tensor
        if self.parent is not None:
            resolved(self.parent)
            return self.parent
        if self.values is not None:
            made = from_values(self.values, self.shape, self.dtype, self.on_cuda)
            return made
        empty = self.origin == "torch.empty" or math.prod(self.shape) == 0
        if self.fill is not None or empty:
            made = new_empty(self.shape, self.dtype, self.on_cuda)
            return made if empty else made.fill_(self.fill)
        _host.reject(
            f"{self.origin} (its result of shape {list(self.shape)} is no parameter of the "
            "reference model, by name or by order)"
        )


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to. Raises RuntimeError as torch does."""
    result = []
    for i in range(max(map(len, shapes), default=0), 0, -1):
        sizes = {shape[-i] for shape in shapes if len(shape) >= i} - {1}
        if len(sizes) > 1:
            raise RuntimeError(f"the shapes {shapes} cannot be broadcast together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)

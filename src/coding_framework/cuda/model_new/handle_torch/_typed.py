"""torch.FloatTensor and its like: an element type and a place that make and name tensors."""

from __future__ import annotations

from typing import Any

from ._create import legacy_tensor
from ._tensor import Tensor
from ._types import BY_NAME, CASTS, DType

_NAMES = {name.title().replace("Bf", "BF"): dtype for name, dtype in CASTS.items()}


class TensorType(type):
    """One of these classes: calling it makes a tensor, and `isinstance` asks for type and place."""

    dtype: DType
    on_cuda: bool

    def __call__(cls, *data: Any) -> Tensor:
        return legacy_tensor(data, cls.dtype, "cuda" if cls.on_cuda else "cpu")

    def __instancecheck__(cls, value: object) -> bool:
        return (
            isinstance(value, Tensor)
            and value.dtype is cls.dtype
            and bool(value.is_cuda) == cls.on_cuda
        )


def typed(*, on_cuda: bool) -> dict[str, TensorType]:
    """The classes of one place, by name."""
    return {
        f"{name}Tensor": TensorType(
            f"{name}Tensor", (), {"dtype": BY_NAME[dtype], "on_cuda": on_cuda}
        )
        for name, dtype in _NAMES.items()
    }


def named(text: str) -> TensorType | None:
    """The class of a name as `Tensor.type()` gives it."""
    place, _, name = text.rpartition(".")
    if place not in ("torch", "torch.cuda"):
        return None
    return typed(on_cuda=place == "torch.cuda").get(name)


def name_of(tensor: Tensor) -> str:
    """What `Tensor.type()` gives."""
    kind = next(name for name, dtype in _NAMES.items() if BY_NAME[dtype] is tensor.dtype)
    return f"torch.{'cuda.' if tensor.is_cuda else ''}{kind}Tensor"

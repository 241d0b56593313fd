"""What torch's own modules (`nn/modules`) take from places of torch that are not here."""

from __future__ import annotations

import sys
from typing import Any

from ._names import Operator
from ._tensor import Tensor
from ._types import Device, DType, Size

torch = sys.modules[__package__ or ""]
device, dtype = Device, DType
_VF = Operator("torch")
__all__ = ["Size", "Tensor", "device", "dtype", "parse_to", "torch"]


def deprecated(*_: Any, **__: Any) -> Any:
    return lambda function: function


def is_traceable_wrapper_subclass(value: object) -> bool:
    return False


def _copy_to_script_wrapper(function: Any) -> Any:
    return function


def parse_to(*arguments: Any, **options: Any) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, whether not to wait, and memory format of what `Module.to` is given."""
    where: Device | None = None
    kind: DType | None = None
    for value in (*arguments, options.get("device"), options.get("dtype")):
        if isinstance(value, Tensor):
            where, kind = value.device, value.dtype
        elif isinstance(value, DType):
            kind = value
        elif isinstance(value, (str, Device, int)) and not isinstance(value, bool):
            where = Device(value)
    return where, kind, False, options.get("memory_format")


def __getattr__(name: str) -> type:
    """A type that nothing here is of."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})

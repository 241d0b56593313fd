"""torch.nn.init: what a parameter starts as. The values are the reference's, so only constants are
kept in mind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _host
from .._deferred import Deferred, State
from .._tensor import Tensor
from .._types import names


def _waiting(tensor: Tensor, name: str) -> Deferred:
    deferred = tensor._deferred
    if not State.constructing or deferred is None or deferred.owner is not None:
        _host.reject(f"torch.nn.init.{name}")
    return deferred


def _random(name: str) -> Callable[..., Tensor]:
    def draw(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        _waiting(tensor, name).forget(f"torch.nn.init.{name}")
        return tensor

    return draw


_RANDOM = """
uniform_ normal_ trunc_normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_
orthogonal_ sparse_ eye_ dirac_
"""
for _name in names(_RANDOM):
    globals()[_name] = _random(_name)


def constant_(tensor: Tensor, val: float) -> Tensor:
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    return tensor.fill_(0)


def ones_(tensor: Tensor) -> Tensor:
    return tensor.fill_(1)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """As torch's: some initialisations of answers call it."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    return {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}.get(nonlinearity, 1.0)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    shape = tensor.shape
    if len(shape) < 2:
        raise ValueError("Fan in and fan out can not be computed for fewer than 2 dimensions")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    return _calculate_fan_in_and_fan_out(tensor)[mode != "fan_in"]

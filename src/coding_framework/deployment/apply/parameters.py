"""What an operation takes: types of its parameters, and the schema of its operator."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import torch

from coding_framework.errors import UsageError


def typed_signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    """With a type for every parameter and the result. Without annotation a parameter has the type
    of its default, or is a tensor; the result is one tensor."""
    try:
        hints = typing.get_type_hints(function)
    except NameError:  # a name that only type checkers import
        hints = {}
    signature = inspect.signature(function)
    parameters = []
    for p in signature.parameters.values():
        if p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise UsageError(
                f"the operation {name!r} cannot have the parameter {p}: give each argument a name "
                "and a place of its own"
            )
        kind = hints.get(p.name)
        if kind is None:
            without = p.default is inspect.Parameter.empty
            kind = torch.Tensor if without else type(p.default)
        if kind not in (torch.Tensor, bool, int, float, str, list[int], list[float]):
            raise UsageError(
                f"the parameter {p.name} of the operation {name!r} is a {kind}: it can be a tensor "
                "or a number, and no other thing"
            )
        parameters.append(p.replace(annotation=kind))
    result = hints.get("return", torch.Tensor)
    return signature.replace(parameters=parameters, return_annotation=result)


def is_tensor(parameter: inspect.Parameter) -> bool:
    return parameter.annotation is torch.Tensor


def schema_of(signature: inspect.Signature) -> str:
    def shaped() -> None: ...

    shaped.__signature__ = signature  # type: ignore[attr-defined]
    return torch.library.infer_schema(shaped, mutates_args=())

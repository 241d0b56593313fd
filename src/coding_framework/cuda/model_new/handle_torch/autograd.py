"""torch.autograd: nothing is differentiated; `Function.apply` is its `forward`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from ._types import Namespace

profiler = Namespace(record_function=lambda *_, **__: contextlib.nullcontext())
F = TypeVar("F", bound=Callable[..., Any])


class no_grad:  # noqa: N801 - torch's name
    """As a context and as a decorator; likewise all that only switches something of torch's."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __new__(cls, *arguments: Any, **_: Any) -> Any:
        if len(arguments) == 1 and callable(arguments[0]):
            return arguments[0]
        return super().__new__(cls)

    def __call__(self, function: F) -> F:
        return function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


enable_grad = inference_mode = set_grad_enabled = no_grad


class Context:
    """What `forward` gets as `ctx`."""

    needs_input_grad: tuple[bool, ...] = ()
    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_dirty(self, *_: Any) -> None:
        return None

    mark_non_differentiable = set_materialize_grads = mark_dirty


class Function:
    """An operation of the answer's own."""

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        forward: Any = cls.forward  # type: ignore[attr-defined]
        return forward(Context(), *arguments)

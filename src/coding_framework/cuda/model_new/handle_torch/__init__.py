"""A torch without arithmetic, for KernelBench answers in the sandbox (imported there as `torch`).

Tensors are handles: shapes, strides and dtypes here, bytes on the judge's device. `load_inline`
gives the functions that the judge's own compiler made; memory operations and launches go to the
judge by messages. Whatever else would compute ends the run as `rejected`, by name, in a way that no
`try` can catch. Nothing here guards anything: the sandbox and the judge do.
"""

# ruff: noqa: F401, F403 - a namespace: what is imported here is what answers find in torch
from __future__ import annotations

from typing import Any

from . import _types, amp, autograd, cuda, jit, nn, utils
from ._create import *
from ._deferred import broadcast
from ._elsewhere import parse_to
from ._names import look_up
from ._tensor import Tensor
from ._typed import typed
from ._types import ALIASES, BY_NAME, DTYPES, Namespace, Size, Token, finfo, iinfo
from .autograd import enable_grad, inference_mode, no_grad, profiler, set_grad_enabled

device, dtype = _types.Device, _types.DType

__version__ = "2.11.0"
for _dtype in DTYPES:
    globals()[_dtype.name] = _dtype
for _alias, _name in ALIASES.items():
    globals()[_alias] = BY_NAME[_name]
_TOKENS = "contiguous_format preserve_format channels_last channels_last_3d strided sparse_coo"
for _token in _types.names(_TOKENS):
    globals()[_token] = Token(f"torch.{_token}")

for _name, _kind in typed(on_cuda=False).items():
    globals()[_name] = _kind
for _name, _kind in typed(on_cuda=True).items():
    setattr(cuda, _name, _kind)
backends = Namespace(
    cudnn=Namespace(
        benchmark=False,
        deterministic=False,
        enabled=True,
        allow_tf32=True,
        is_acceptable=lambda tensor: False,
    ),
    cuda=Namespace(matmul=Namespace(allow_tf32=False)),
)
version = Namespace(cuda="13.0")


# what torch's own modules ask of it
class _Inside(Namespace):
    """Parts of torch where nothing goes on: no trace, no compiler, no log."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


_C, __future__ = _Inside(_nn=Namespace(_parse_to=parse_to)), _Inside()
_jit_internal = Namespace(_overload_method=lambda method: method)


def _has_compatible_shallow_copy_type(one: Tensor, other: Tensor) -> bool:
    return True


def typename(value: Any) -> str:
    return type(value).__name__


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_grad_enabled() -> bool:
    return False


def compile(model: Any = None, **_: Any) -> Any:
    """The function itself: there is nothing to compile."""
    return model if model is not None else lambda function: function


compiler = Namespace(
    disable=compile,
    allow_in_graph=compile,
    is_compiling=lambda: False,
    cudagraph_mark_step_begin=lambda: None,
)


def set_float32_matmul_precision(precision: str) -> None:
    """No product of torch's is ever taken."""


def use_deterministic_algorithms(mode: bool, **_: Any) -> None:
    """No algorithm of torch's is ever run."""


def broadcast_shapes(*shapes: Any) -> Size:
    return Size(broadcast(*(s if isinstance(s, tuple) else (s,) for s in shapes)))


def promote_types(type1: _types.DType, type2: _types.DType) -> _types.DType:
    return _types.promoted(type1, type2)


def _assert(condition: Any, message: str) -> None:
    assert condition, message


def _method(name: str) -> Any:
    return lambda input, *arguments, **options: getattr(input, name)(*arguments, **options)


_METHODS = """
reshape flatten ravel unflatten transpose swapaxes t permute movedim moveaxis squeeze unsqueeze
select narrow split chunk unbind as_strided broadcast_to clone detach view_as
is_floating_point numel
"""
for _name in _types.names(_METHODS):
    globals()[_name] = _method(_name)


def __getattr__(name: str) -> Any:
    return look_up("torch", name, "module 'torch'")

"""Calls of a task's model: in its own dtype, in float64, and on inputs that rounding moved."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import CellType, FunctionType
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from coding_framework.reference_model import tensors_of

_COPIED_BY = ("__deepcopy__", "__reduce_ex__", "__getstate__", "__setstate__")
_UNCHANGING = (type(None), bool, int, float, str)
_TABLES = (dict, OrderedDict, set)


def copied(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """`copy.deepcopy(module)`, without the time that it takes over a module's empty tables."""
    memo = {} if memo is None else memo
    if id(module) in memo:
        return memo[id(module)]  # type: ignore[no-any-return]
    kind = type(module)
    if _copies_itself(kind):  # type: ignore[arg-type]
        return copy.deepcopy(module, memo)
    made = memo[id(module)] = kind.__new__(kind)
    for name, value in vars(module).items():
        if type(value) in _UNCHANGING:
            made.__dict__[name] = value
        elif type(value) in _TABLES and not value:
            made.__dict__[name] = type(value)()
        elif name == "_modules":
            made.__dict__[name] = {n: m and copied(m, memo) for n, m in value.items()}
        elif isinstance(value, FunctionType) and value.__closure__:
            made.__dict__[name] = _of_copies(value, memo)
        else:
            made.__dict__[name] = copy.deepcopy(value, memo)
    return made


def _of_copies(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """The same function over copies of the modules that it has seen: minGPT's block calls its
    layers by one."""
    cells = tuple(
        CellType(copied(cell.cell_contents, memo))
        if cell != CellType() and isinstance(cell.cell_contents, nn.Module)
        else cell
        for cell in function.__closure__ or ()
    )
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch's operations of this thread take one core. Others would wait for work by spinning,
    and the order of its sums would depend on the machine's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=256)
def _copies_itself(kind: Hashable) -> bool:
    """Whether a class of modules has its own way to be copied."""
    return any(getattr(kind, n, None) is not getattr(nn.Module, n, None) for n in _COPIED_BY)


def call(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Outputs on copies, so that no reference can change what the next one sees."""
    return run(copied(model), tuple(t.clone() for t in inputs))


def run(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Outputs on these very tensors. Raises TypeError where one is no tensor."""
    with torch.no_grad():
        return tensors_of(model(*inputs))


def call_in_float64(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    within: AbstractContextManager[object] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Outputs in float64, where they are floating. within: entered for the call itself."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    kind = type(model)
    try:
        try:
            outputs = _run_in_float64(model, inputs, within)
        except RuntimeError:
            if within is not None or kind in _NAME_FLOAT32:
                raise
            _NAME_FLOAT32.add(kind)
            try:
                outputs = _run_in_float64(model, inputs, within)
            except RuntimeError:
                _NAME_FLOAT32.discard(kind)
                raise
        return tuple(_in_float64(t) for t in outputs)  # also where the model itself names a dtype
    finally:
        torch.set_default_dtype(default)


_NAME_FLOAT32: WeakSet[type[nn.Module]] = WeakSet()
"""Models that fail in float64 since they name float32 (`mask.float() @ x`): there float64 is
meant."""


def _run_in_float64(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    within: AbstractContextManager[object] | None,
) -> tuple[torch.Tensor, ...]:
    doubled = copied(model).to(torch.float64)
    copies = tuple(_in_float64(t, copy=True) for t in inputs)
    meant = _Float32Meant() if type(model) in _NAME_FLOAT32 else nullcontext()
    with within or nullcontext(), meant:
        return run(doubled, copies)


class _Float32Meant(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **named)


def _in_float64(tensor: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    """In float64, if it is floating."""
    dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.to(dtype, copy=copy)


def rounding_unit(inputs: Sequence[torch.Tensor]) -> float:
    """Relative change of the perturbed runs: twice the rounding of the coarsest input dtype."""
    floating = [torch.finfo(t.dtype).eps for t in inputs if t.is_floating_point()]
    return 2.0 * max(floating, default=torch.finfo(torch.float32).eps)


def perturbed(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], eps: float
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Copies in which every floating number is multiplied by 1 + eps or 1 - eps."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        coin = torch.randint(0, 2, tensor.shape, dtype=torch.int8).view(torch.bool)
        less, more = torch.tensor([-1.0, 1.0], dtype=tensor.dtype).mul_(eps).add_(1)
        return torch.where(coin, more, less).mul_(tensor)

    moved = copied(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.copy_(move(parameter))
    return moved, tuple(move(t) for t in inputs)

"""What PyTorch eager does for a task: how many kernels it launches, of which kinds, on how much.

The rule: the task's model is called on meta tensors of the timed shape set, and the operations that
reach PyTorch's dispatcher are counted, one kernel each, but those that launch none: views (their
result aliases an input by the operation's own schema, or is `_unsafe_view`) and empty tensors.
Composite functions count as what they dispatch to: `softmax` and `layer_norm` as one,
`cross_entropy` as two. An operation that launches several kernels inside (a sum in two passes)
counts as one, so the count is a lower bound. Bytes are the task's inputs and outputs, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coding_framework.types import Task, TestCase

CHAIN_KERNELS = 3
ENOUGH_BYTES = 64 << 20
"""Moved by a task whose time says something of memory, and not of the launch."""

_NO_KERNEL = ("_unsafe_view", "empty", "empty_like", "empty_strided", "scalar_tensor", "detach")
_COPIES = ("clone", "copy_", "_to_copy", "contiguous")
_ALSO_ELEMENTWISE = (
    "hardswish", "leaky_relu", "log_sigmoid_forward", "floor_divide", "masked_fill_",
)  # fmt: skip
"""That PyTorch does not tag as pointwise."""
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution")


@dataclass(frozen=True, slots=True)
class EagerWork:
    """Of one call of a task's model."""

    kernels: tuple[str, ...]
    """Names of the operations that launch."""
    elementwise: bool
    """Whether each of them computes every output element from one of each input, copies apart."""
    bytes_moved: int

    @property
    def is_single_elementwise(self) -> bool:
        return len(self.kernels) == 1 and self.elementwise

    @property
    def is_chain(self) -> bool:
        return len(self.kernels) >= CHAIN_KERNELS

    @property
    def has_product(self) -> bool:
        """A matrix product or a convolution."""
        return any(kernel in _PRODUCTS for kernel in self.kernels)

    @property
    def moves_enough(self) -> bool:
        return self.bytes_moved >= ENOUGH_BYTES


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.launched: list[Any] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not _is_view(func) and _name(func) not in _NO_KERNEL:
            self.launched.append(func)
        return func(*args, **(kwargs or {}))


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _is_view(func: Any) -> bool:
    aliases = (r.alias_info for r in func._schema.returns)
    return any(alias is not None and not alias.is_write for alias in aliases)


def _is_elementwise(func: Any) -> bool:
    name = _name(func)
    return name in _ALSO_ELEMENTWISE or (torch.Tag.pointwise in func.tags and name not in _COPIES)


@lru_cache(maxsize=4096)
def eager_work(task: Task) -> EagerWork:
    """Of the task's timed shape set. A function that has no meta form (it allocates by value) is
    called on small zeros instead: its kernels are the same."""
    case = task.gpu_cases[0] if task.gpu_cases else task.cases[0]
    try:
        launched, outputs = _called(task, case, "meta")
    except NotImplementedError:
        launched, outputs = _called(task, task.cases[0], "cpu")
    return EagerWork(
        kernels=tuple(_name(func) for func in launched),
        elementwise=all(_is_elementwise(func) for func in launched),
        bytes_moved=sum(_bytes(t) for t in (*_tensors(case, "meta"), *outputs)),
    )


def _called(task: Task, case: TestCase, device: str) -> tuple[list[Any], tuple[torch.Tensor, ...]]:
    namespace: dict[str, Any] = {"__name__": "task_reference"}
    exec(compile(task.reference, "<task reference>", "exec"), namespace)  # our own, a catalogue's
    make: Callable[..., torch.nn.Module] = namespace["Model"]
    model = make(*(case.init_args or task.init_args)).to(device)
    inputs, recorder = _tensors(case, device), _Recorder()
    with torch.no_grad(), recorder:
        result = model(*inputs)
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return recorder.launched, tuple(t for t in outputs if isinstance(t, torch.Tensor))


def _tensors(case: TestCase, device: str) -> list[torch.Tensor]:
    return [
        torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        for spec in case.inputs
    ]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()

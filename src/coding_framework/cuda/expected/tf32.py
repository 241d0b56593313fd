"""TF32: what the products of a task lose whose own PyTorch computes them so.

Tensor cores read float32 factors as TF32, with 10 bits behind the point, and add up in float32.
PyTorch does the same where a program asks for it. A task asks by the same line, and its tolerance
then rests on what PyTorch loses with such factors, cut off, as tensor cores cut them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from coding_framework.cuda.expected.model_calls import call

_aten = torch.ops.aten
_FACTORS = {
    _aten.mm: (0, 1), _aten.bmm: (0, 1), _aten.addmm: (1, 2), _aten.baddbmm: (1, 2),
    _aten.convolution: (0, 1),
}  # fmt: skip
"""Where the factors stand among the arguments of a product."""
_KEPT, _LAST = ~0x1FFF, 0x2000
_SHARE = 2 / 8
"""The bound allows 8 times PyTorch's error (`tolerance.py`): here twice. Factors of 8 bits
(bfloat16) lose four times as much."""


RUNS = 4
"""The first cuts factors off, the others draw: a few elements are exact by luck in one."""


def in_tf32(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    reference: Sequence[torch.Tensor],
    run: int,
) -> tuple[torch.Tensor, ...]:
    """PyTorch's outputs with products in TF32, moved to `reference` so far that the bound of
    `tolerance.py` allows what it should."""
    with sdpa_kernel(SDPBackend.MATH), _Products(drawn=run > 0):
        outputs = call(model, inputs)
    return tuple(
        torch.lerp(r, o.to(torch.float64), _SHARE).to(o.dtype) if o.is_floating_point() else o
        for o, r in zip(outputs, reference, strict=True)
    )


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside the block factors of products of float32 are cut off, or, drawn, cut off or up."""

    def __init__(self, drawn: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drawn = drawn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places = _FACTORS.get(func.overloadpacket, ())
        if places and all(args[i].dtype is torch.float32 for i in places):
            args = [self._cut_off(a) if i in places else a for i, a in enumerate(args)]
        return func(*args, **(kwargs or {}))

    def _cut_off(self, factor: torch.Tensor) -> torch.Tensor:
        bits = torch.bitwise_and(factor.contiguous().view(torch.int32), _KEPT)
        if self._drawn:
            bits += torch.randint_like(bits, 0, 2) * _LAST
        return bits.view(torch.float32)

"""What a task's function needs at least: operations, and the part of its inputs that matters.

For the physical floor of a time, so both err on the low side: an operation or a byte that is not
seen to matter counts as not needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from coding_framework.cuda.expected.inputs import distinct_bytes, tensor_bits
from coding_framework.cuda.plan.launch_plan import most_at_once
from coding_framework.reference_model import tensors_of
from coding_framework.reference_model.operations import OperationCounter, OperationMode

_SECTOR_BYTES = 32
_PROBED_SECTORS = 48
_Z95 = 1.645
"""One-sided 95%."""


def counted_flops(model: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Operations of matrix products and convolutions, by PyTorch's own formulas; what is done
    element by element is not counted."""
    copies = [t.clone() for t in inputs]
    counter = OperationCounter()
    with torch.no_grad(), counter:
        model(*copies)
    return counter.flops


def workspace_bytes(model: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Bytes of the tensors that PyTorch makes and holds at its peak, without those of the inputs,
    the parameters and the outputs. What its libraries take beside is not seen."""
    copies = [t.clone() for t in inputs]
    with torch.no_grad(), Memories() as memories:
        outputs = tensors_of(model(*copies))
    return most_at_once(memories.changes, {memories.number_of(t) for t in outputs})


class Memories(OperationMode):  # type: ignore[no-untyped-call]
    """What the operations within it read and make, and when it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[int, int]] = []
        """(number of a memory, its bytes; 0: it is gone), in order."""
        self.elements_at_once = 0
        """That the largest operation reads and makes."""
        self._held: dict[int, tuple[int, StorageWeakRef]] = {}
        """By PyTorch's own number of it, which is free for another when it is gone."""

    @property
    def result_bytes(self) -> int:
        """Of all results together."""
        return sum(nbytes for _, nbytes in self.changes)

    def number_of(self, tensor: torch.Tensor) -> int:
        """-1 where no operation made its memory."""
        return self._held.get(tensor.untyped_storage()._cdata, (-1,))[0]

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        given = {id(t): t for t in _tensors((args, kwargs))}
        made = {} if getattr(func, "is_view", False) else {id(t): t for t in _tensors(result)}
        at_once = sum(t.numel() for t in (given | made).values())
        self.elements_at_once = max(self.elements_at_once, at_once)
        for own, (number, held) in list(self._held.items()):
            if held.expired():  # type: ignore[no-untyped-call]
                del self._held[own]
                self.changes.append((number, 0))
        known = {t.untyped_storage()._cdata for t in given.values()}
        for storage in (t.untyped_storage() for t in made.values()):
            if storage._cdata not in {*known, *self._held}:
                held = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._held[storage._cdata] = len(self.changes), held
                self.changes.append((len(self.changes), storage.nbytes()))
        return result


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def needed_input_bytes(
    model: nn.Module, inputs: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> int:
    """A lower bound (95%) of the bytes of `inputs` on which the answer depends.

    Sectors of 32 bytes, drawn at random, take the values that they have in `others`, another draw
    of the same inputs; each that leaves the output as it was counts as not needed.
    """
    base = _answer(model, inputs)
    distinct = [distinct_bytes(t) // t.element_size() for t in inputs]
    inputs = [t.contiguous() for t in inputs]
    generator = torch.Generator().manual_seed(torch.seed() >> 1)
    total = 0
    for i, tensor in enumerate(inputs):
        flat_other = others[i].contiguous().reshape(-1)
        size = max(1, _SECTOR_BYTES // tensor.element_size())
        sectors = math.ceil(tensor.numel() / size)
        if sectors == 0:
            continue
        probes = torch.randint(sectors, (_PROBED_SECTORS,), generator=generator, device="cpu")
        seen = 0
        for start in (size * probe for probe in probes.tolist()):
            changed = [t.clone() if j == i else t for j, t in enumerate(inputs)]
            flat = changed[i].view(-1)
            flat[start : start + size] = flat_other[start : start + size]
            seen += _differs(base, _answer(model, changed))
        total += int(share_at_least(seen, _PROBED_SECTORS) * distinct[i]) * tensor.element_size()
    return total


def share_at_least(seen: int, probed: int) -> float:
    """Lower end of the one-sided 95% interval (Wilson) of a share of which `seen` of `probed` were
    found."""
    if seen == 0:
        return 0.0
    p, z2 = seen / probed, _Z95**2
    centre = p + z2 / (2 * probed)
    spread = _Z95 * math.sqrt(p * (1 - p) / probed + z2 / (4 * probed**2))
    return max(0.0, (centre - spread) / (1 + z2 / probed))


def _answer(model: nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(tensors_of(model(*(t.clone() for t in inputs))))


def _differs(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return any(
        not torch.equal(tensor_bits(a), tensor_bits(b)) for a, b in zip(one, other, strict=True)
    )

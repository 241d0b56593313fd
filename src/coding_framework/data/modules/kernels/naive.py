"""The naive kernel of a module task: one thread an output, operation after operation.

Sums with few results and many terms get a block each; everything else is as direct as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coding_framework.data.modules.kernels.lowering import Lowering
from coding_framework.data.modules.kernels.naive_layers import LAYER_KERNELS, Lower, Parameters
from coding_framework.data.modules.kernels.naive_tensors import TENSOR_KERNELS
from coding_framework.data.modules.pointwise import POINTWISE
from coding_framework.data.modules.records import KernelVariant, ModuleTask, Operation, op

_Step = tuple[Operation, Parameters]
_NOTHING: _Step = (op("elementwise"), ())


def naive_kernel(task: ModuleTask) -> KernelVariant:
    """Its source."""
    return KernelVariant(level=0, reason="", source=lower(task).source())


def lower(task: ModuleTask, heads: Mapping[str, Lower] | None = None) -> Lowering:
    """The kernels of all operations, one after the other. heads: what writes an operation's kernels
    instead of the naive ones."""
    w = Lowering(task)
    for head, after in _stages(task):
        w.post = after
        operation, parameters = head
        known = {**TENSOR_KERNELS, **LAYER_KERNELS, **(heads or {})}
        known[operation.name](w, operation, parameters)
        if w.post:  # no kernel of the operation has taken what comes after it
            known["elementwise"](w, *_NOTHING)
    return w


def _stages(task: ModuleTask) -> Iterator[tuple[_Step, list[_Step]]]:
    """(an operation that needs kernels of its own, the elementwise ones after it). Elementwise
    operations at the start come after one that changes nothing."""
    head: _Step | None = None
    after: list[_Step] = []
    for step in zip(task.operations, task.operation_parameters, strict=True):
        if step[0].name in POINTWISE:
            after.append(step)
            continue
        if head is not None or after:
            yield head or _NOTHING, after
        head, after = step, []
    yield head or _NOTHING, after

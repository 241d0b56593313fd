"""The families of workloads, and the names that they give.

To add one: an operation in the module of its kind, its family here. The tests then check its
source, its kernels and its split against each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coding_framework.data.synthesis.ops import Step, parse_step
from coding_framework.data.synthesis.workloads import (
    attention,
    moves,
    planes,
    pointwise,
    products,
    rows,
    windows,
)
from coding_framework.data.synthesis.workloads.base import (
    DTYPE_TOKENS,
    Workload,
    WorkloadOp,
)


@dataclass(frozen=True, slots=True)
class WorkloadFamily:
    """A kind of task: operations that are learnt together."""

    name: str
    tier: int
    operations: tuple[WorkloadOp, ...]
    held_out: bool = False
    """Whether no member is ever trained on: what is learnt must carry over to a new kind."""


WORKLOAD_FAMILIES: tuple[WorkloadFamily, ...] = (
    WorkloadFamily("select", 0, pointwise.SELECT),
    WorkloadFamily("multiply_add", 0, pointwise.MULTIPLY_ADD),
    WorkloadFamily("integer", 0, pointwise.INTEGER),
    WorkloadFamily("low_precision", 0, pointwise.LOW_PRECISION),
    WorkloadFamily("argmax", 1, rows.ARGMAX),
    WorkloadFamily("matvec", 1, rows.MATVEC),
    WorkloadFamily("similarity", 1, rows.SIMILARITY),
    WorkloadFamily("permute", 1, moves.PERMUTE),
    WorkloadFamily("middle_reduction", 1, moves.MIDDLE_REDUCTION, held_out=True),
    WorkloadFamily("gather", 1, moves.GATHER),
    WorkloadFamily("histogram", 1, moves.HISTOGRAM),
    WorkloadFamily("batched_matmul", 2, products.BATCHED_MATMUL),
    WorkloadFamily("matmul_transposed", 2, products.MATMUL_TRANSPOSED),
    WorkloadFamily("attention_scores", 2, attention.ATTENTION_SCORES),
    WorkloadFamily("pool_1d", 2, windows.POOL_1D),
    WorkloadFamily("pool_2d", 2, windows.POOL_2D),
    WorkloadFamily("conv_1d", 2, windows.CONV_1D),
    WorkloadFamily("conv_2d", 2, windows.CONV_2D),
    WorkloadFamily("depthwise_conv", 2, windows.DEPTHWISE_CONV, held_out=True),
    WorkloadFamily("group_norm", 2, rows.GROUP_NORM),
    WorkloadFamily("channel_norm", 2, planes.CHANNEL_NORM),
    WorkloadFamily("upsample", 2, planes.UPSAMPLE),
    WorkloadFamily("glu", 2, moves.GLU),
    WorkloadFamily("activation_backward", 3, pointwise.ACTIVATION_BACKWARD),
    WorkloadFamily("optimizer_step", 3, pointwise.OPTIMIZER_STEP),
    WorkloadFamily("cross_entropy", 3, rows.CROSS_ENTROPY),
    WorkloadFamily("row_loss", 3, rows.ROW_LOSS),
    WorkloadFamily("softmax_backward", 3, rows.SOFTMAX_BACKWARD),
    WorkloadFamily("norm_backward", 3, rows.NORM_BACKWARD, held_out=True),
    WorkloadFamily("attention", 3, attention.ATTENTION),
    WorkloadFamily("gated_linear", 3, products.GATED_LINEAR),
    WorkloadFamily("conv_block", 3, windows.CONV_BLOCK),
    WorkloadFamily("rotary", 3, planes.ROTARY),
)

OPERATIONS: dict[str, WorkloadOp] = {
    op.name: op for family in WORKLOAD_FAMILIES for op in family.operations
}
FAMILY_OF_OPERATION: dict[str, WorkloadFamily] = {
    op.name: family for family in WORKLOAD_FAMILIES for op in family.operations
}


def parse_workload(name: str) -> Workload | None:
    """The valid workload of that name; None where a token, the form or the domain is wrong."""
    tokens = name.split("_")
    dtype = next((d for d, t in DTYPE_TOKENS.items() if t and t == tokens[-1]), None)
    if dtype is not None:
        tokens = tokens[:-1]
    found = [(i, made) for i, token in enumerate(tokens) if (made := _parse_operation(token))]
    if len(found) != 1:
        return None
    place, (op, params) = found[0]
    before = [parse_step(t) for t in tokens[:place]]
    after = [parse_step(t) for t in tokens[place + 1 :]]
    if any(s is None for s in (*before, *after)):
        return None
    workload = Workload(op, params, _steps(before), _steps(after), dtype or "float32")
    return workload if workload.input_range() is not None else None


def _steps(found: list[Step | None]) -> tuple[Step, ...]:
    return tuple(s for s in found if s is not None)


def _parse_operation(token: str) -> tuple[WorkloadOp, tuple[int, ...]] | None:
    if token in OPERATIONS and not OPERATIONS[token].letters:
        return OPERATIONS[token], ()
    for name, op in OPERATIONS.items():
        if not op.letters or not token.startswith(name):
            continue
        pattern = "".join(f"{letter}([1-9][0-9]{{0,3}})" for letter in op.letters)
        match = re.fullmatch(pattern, token.removeprefix(name))
        if match is not None:
            return op, tuple(int(value) for value in match.groups())
    return None

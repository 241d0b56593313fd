"""From a program to a `Task`: the PyTorch source, the shape sets, the declared domains."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from coding_framework.data.synthesis.program import Input, Operation, Program
from coding_framework.types import Split, Task, TensorSpec, TestCase

Sizes = tuple[int, int, int]
"""Rows and columns of x, and columns of the right-hand matrix of a product."""

MAP_SIZES: tuple[Sizes, ...] = ((128, 512, 0), (61, 259, 0), (3, 5, 0))
ROW_SIZES: tuple[Sizes, ...] = ((384, 192, 0), (301, 133, 0), (3, 5, 0))
TRANSPOSE_SIZES: tuple[Sizes, ...] = ((512, 512, 0), (301, 133, 0), (3, 5, 0))
MATMUL_SIZES: tuple[Sizes, ...] = ((96, 128, 64), (67, 75, 45), (3, 5, 4))
GPU_SIZES: tuple[Sizes, ...] = ((4096, 8192, 0), (4093, 8191, 0), (3, 5, 0))
"""The one agents see, an odd one (no multiple of 2 or 4), a tiny one. On a GPU x alone is 128 MiB,
more than an H200's L2. The hidden ones are varied by task, see `_varied`."""
GPU_MATMUL_SIZES: tuple[Sizes, ...] = ((4096, 4096, 4096), (1021, 2043, 1019), (3, 5, 4))

CASE_NAMES = ("main", "odd", "tiny")


def model_source(program: Program) -> str:
    """A `Model` with one statement per step; constants stand in it literally, so `forward` takes
    only tensors."""
    before, after = program.bind()
    lines = [o.step.render(o.step.op.torch, "x", o.operand) for o in before]
    if program.layout != "map":
        lines.append(program.spec.torch.format(v="x"))
    lines += [o.step.render(o.step.op.torch, "x", o.operand) for o in after]
    *above, last = lines
    return module_text(
        [given.name for given in program.inputs], [*(f"x = {line}" for line in above), last]
    )


def module_text(others: Sequence[str], lines: Sequence[str]) -> str:
    """A `Model` of x and others whose `forward` has these lines, the last one an expression."""
    *above, last = lines
    body = [f"        {line}" for line in (*above, f"return {last}")]
    functional = any("F." in line for line in body)
    return "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            *(["import torch.nn.functional as F"] if functional else []),
            "",
            "class Model(nn.Module):",
            f"    def forward({', '.join(['self', 'x', *others])}):",
            *body,
            "",
        ]
    )


def describe(program: Program) -> str:
    """One line of mathematics, e.g. "out = rowsum(relu(x * 2.0 + y))"."""
    before, after = program.bind()
    text = program.spec.spoken.format(v=spoken(before, "x"))
    text = spoken(after, text)
    notes = {"row": "a row vector", "col": "a column vector", "scalar": "a scalar tensor"}
    said = [f"{i.name} {notes[i.kind]}" for i in program.inputs if i.kind in notes]
    return f"out = {text}" + (f"; {', '.join(said)}" if said else "")


def spoken(operations: Iterable[Operation], text: str) -> str:
    """Steps of `text` in mathematical notation."""
    for operation in operations:
        template = operation.step.op.said
        enclosed = any(mark in template for mark in ("({v}", "|{v}|"))
        inner = f"({text})" if " " in text and not enclosed else text
        text = operation.step.render(template, inner, operation.operand)
    return text


def make_task(program: Program, *, family: str, tier: int, split: Split) -> Task:
    """The task of a program."""
    x_range = program.input_range()
    if x_range is None:
        raise ValueError(f"no declared domain of x makes {program.name!r} valid")
    emulator, gpu = _sizes(program)
    return Task(
        name=program.name,
        tier=tier,
        family=family,
        ops=program.ops,
        description=describe(program),
        reference=model_source(program),
        cases=_cases(program, x_range, emulator),
        gpu_cases=_cases(program, x_range, gpu),
        atomic_order=program.spec.form == "all",
        split=split,
    )


def _sizes(program: Program) -> tuple[tuple[Sizes, ...], tuple[Sizes, ...]]:
    """(for the emulator, for a GPU)."""
    match program.spec.form:
        case "matmul":
            return MATMUL_SIZES, GPU_MATMUL_SIZES
        case "transpose":
            return TRANSPOSE_SIZES, GPU_SIZES
        case "map":
            return MAP_SIZES, GPU_SIZES
        case _:
            return ROW_SIZES, GPU_SIZES


def _cases(
    program: Program, x_range: tuple[float, float], sizes: tuple[Sizes, ...]
) -> tuple[TestCase, ...]:
    return tuple(
        _case(program, x_range, name, _varied(size, name, program.name))
        for name, size in zip(CASE_NAMES, sizes, strict=True)
    )


def _varied(sizes: Sizes, case: str, task: str) -> Sizes:
    """The extents of a hidden shape set of this task: shapes that are the same for all tasks could
    be learnt. Odd ones stay odd and lose up to a quarter; tiny ones are 1 to 6. Fixed by the
    task's name; the shape set that agents see is the same for all."""
    if case == CASE_NAMES[0]:
        return sizes
    drawn = hashlib.sha256(f"{task} {case}".encode()).digest()
    rows, columns, right = (
        1 + drawn[4 * i] % 6 if size < 8 else size - 2 * (_number(drawn, i) % (size // 8))
        for i, size in enumerate(sizes)
    )
    return rows, max(2, columns), right if sizes[2] else 0


def _number(drawn: bytes, i: int) -> int:
    return int.from_bytes(drawn[4 * i : 4 * i + 4], "big")


def _case(program: Program, x_range: tuple[float, float], name: str, sizes: Sizes) -> TestCase:
    rows, columns, _ = sizes
    x = TensorSpec(name="x", shape=(rows, columns), low=x_range[0], high=x_range[1])
    others = [
        TensorSpec(name=i.name, shape=_shape(program, i, sizes), low=i.low, high=i.high)
        for i in program.inputs
    ]
    terms = {"all": rows * columns, "columns": rows}.get(program.spec.form, columns)
    return TestCase(
        name=name,
        inputs=(x, *others),
        reduction_length=terms if program.spec.sums else 1,
        shown=name == CASE_NAMES[0],
    )


def _shape(program: Program, given: Input, sizes: Sizes) -> tuple[int, ...]:
    rows, columns, right = sizes
    if given.kind is None:
        return columns, right
    width = right if program.spec.form == "matmul" else columns
    return {"full": (rows, columns), "row": (width,), "col": (rows, 1), "scalar": ()}[given.kind]

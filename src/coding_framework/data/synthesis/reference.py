"""From a program to a `Task`: the PyTorch source, the shape sets, the declared domains."""

from __future__ import annotations

from coding_framework.data.synthesis.interval import Operand
from coding_framework.data.synthesis.ops import Step
from coding_framework.data.synthesis.program import REDUCTIONS, SCANS, Program
from coding_framework.types import Split, Task, TensorSpec, TestCase

Shape = tuple[int, int]

MAP_SHAPES: tuple[Shape, ...] = ((256, 512), (123, 457), (3, 5))
ROW_SHAPES: tuple[Shape, ...] = ((256, 256), (67, 301), (3, 5))
GPU_SHAPES: tuple[Shape, ...] = ((4096, 8192), (4093, 8191), (3, 5))
"""Rows and columns of x: the one agents see, an odd one (no multiple of 2 or 4), a tiny one.
On a GPU x alone is 128 MiB, more than an H200's L2."""

CASE_NAMES = ("main", "odd", "tiny")


def model_source(program: Program) -> str:
    """A `Model` with one statement per step; constants stand in it literally, so `forward` takes
    only tensors."""
    arguments = ", ".join(["x", *(name for name, _ in program.operands)])
    lines = [o.step.render(o.step.op.torch, "x", o.operand) for o in program.bind()]
    lines += {
        "map": [],
        "rowsum": ["torch.sum(x, dim=1)"],
        "rowmean": ["torch.mean(x, dim=1)"],
        "rowmax": ["torch.max(x, dim=1).values"],
        "rowmin": ["torch.min(x, dim=1).values"],
        "transpose": ["x.t().contiguous()"],
        "cumsum": ["torch.cumsum(x, dim=1)"],
        "cummax": ["torch.cummax(x, dim=1).values"],
    }[program.layout]
    lines += [s.render(s.op.torch, "x") for s in program.after]
    body = [f"        x = {line}" for line in lines[:-1]] + [f"        return {lines[-1]}"]
    functional = any("F." in line for line in lines)
    return "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            *(["import torch.nn.functional as F"] if functional else []),
            "",
            "class Model(nn.Module):",
            f"    def forward(self, {arguments}):",
            *body,
            "",
        ]
    )


def describe(program: Program) -> str:
    """One line of mathematics, e.g. "row sums of relu(x * 2.0 + y)"."""
    text = "x"
    for operation in program.bind():
        text = _spoken(operation.step, text, operation.operand)
    text = {
        "map": "{}",
        "rowsum": "rowsum({})",
        "rowmean": "rowmean({})",
        "rowmax": "rowmax({})",
        "rowmin": "rowmin({})",
        "transpose": "transpose({})",
        "cumsum": "cumsum({}) along each row",
        "cummax": "cummax({}) along each row",
    }[program.layout].format(text)
    for step in program.after:
        text = _spoken(step, text)
    kinds = {s.operand for s in program.before}
    notes = {"row": "b a row vector", "col": "c a column vector", "scalar": "s a scalar tensor"}
    said = [note for kind, note in notes.items() if kind in kinds]
    return f"out = {text}" + (f"; {', '.join(said)}" if said else "")


def _spoken(step: Step, text: str, operand: str = "") -> str:
    template = step.op.spoken
    enclosed = any(mark in template for mark in ("({v}", "|{v}|"))
    return step.render(template, f"({text})" if " " in text and not enclosed else text, operand)


def make_task(program: Program, *, family: str, tier: int, split: Split) -> Task:
    """The task without its naive kernel (`catalog.find` adds it)."""
    x_range = program.input_range()
    if x_range is None:
        raise ValueError(f"no declared domain of x makes {program.name!r} valid")
    along_rows = program.layout in (*REDUCTIONS, *SCANS, "transpose")
    small = ROW_SHAPES if along_rows else MAP_SHAPES
    return Task(
        name=program.name,
        tier=tier,
        family=family,
        ops=program.ops,
        description=describe(program),
        reference=model_source(program),
        cases=tuple(
            _case(program, x_range, *named) for named in zip(CASE_NAMES, small, strict=True)
        ),
        gpu_cases=tuple(
            _case(program, x_range, *named) for named in zip(CASE_NAMES, GPU_SHAPES, strict=True)
        ),
        split=split,
    )


def _case(program: Program, x_range: tuple[float, float], name: str, shape: Shape) -> TestCase:
    rows, columns = shape
    shapes: dict[Operand, tuple[int, ...]] = {
        "full": shape, "row": (columns,), "col": (rows, 1), "scalar": (),
    }  # fmt: skip
    inputs = [TensorSpec(name="x", shape=shape, low=x_range[0], high=x_range[1])]
    for operand, step in program.operands:
        assert step.operand is not None
        low, high = step.op.operand_range
        inputs.append(TensorSpec(name=operand, shape=shapes[step.operand], low=low, high=high))
    sums = program.layout in ("rowsum", "rowmean", "cumsum")
    return TestCase(
        name=name,
        inputs=tuple(inputs),
        reduction_length=columns if sums else 1,
        shown=name == CASE_NAMES[0],
    )

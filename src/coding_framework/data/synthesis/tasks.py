"""From a function to a `Task`: the PyTorch source, the words, the shape sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coding_framework.data.synthesis.function import Bound, Function
from coding_framework.types import Task, TestCase

CASE_NAMES = ("main", "odd", "tiny")


def make_task(function: Function, facts: Mapping[str, Any]) -> Task:
    """The task of a function. facts: the fields that a list tells. Raises ValueError for one that
    is valid on no domain."""
    if function.input_range() is None:
        raise ValueError(f"no declared domain of x makes {function.name!r} valid")
    return Task(
        **facts,
        reference=model_source(function),
        cases=_cases(function, gpu=False),
        gpu_cases=_cases(function, gpu=True),
        atomic_order=function.core.any_order,
    )


def _cases(function: Function, *, gpu: bool) -> tuple[TestCase, ...]:
    return tuple(
        TestCase(
            name=name,
            inputs=function.specs(size),
            reduction_length=function.terms(size),
            shown=name == CASE_NAMES[0],
        )
        for name, size in zip(CASE_NAMES, function.sizes(gpu), strict=True)
    )


def model_source(function: Function) -> str:
    """A `Model` with one statement per step and the core's lines between them; constants stand in
    it literally, so `forward` takes only tensors."""
    before, after = function.bind()
    torch = function.core.torch
    own = (torch,) if isinstance(torch, str) else torch
    *above, value = (line.format(**function.named) for line in own)
    values = [s.render(s.op.torch, "x", name) for s, name in before]
    lines = [*(f"x = {text}" for text in values), *above]
    values = [value] * (value != "x") + [s.render(s.op.torch, "x", name) for s, name in after]
    lines += [f"x = {text}" for text in values]
    *above, last = lines or ["x"]
    body = [f"        {line}" for line in (*above, f"return {last.removeprefix('x = ')}")]
    functional = any("F." in line for line in body)
    return "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            *(["import torch.nn.functional as F"] if functional else []),
            "",
            "class Model(nn.Module):",
            f"    def forward({', '.join(['self', 'x', *(i.name for i in function.inputs)])}):",
            *body,
            "",
        ]
    )


_NOTES = {"row": "a row vector", "col": "a column vector", "scalar": "a scalar tensor"}


def describe(function: Function) -> str:
    """One line of mathematics, e.g. "out = rowsum(relu(x * 2.0 + y))"."""
    before, after = function.bind()
    text = function.core.spoken.format(v=_spoken(before, "x"), **function.named)
    text = _spoken(after, text)
    notes = [f"{name} {_NOTES[s.operand]}" for s, name in (*before, *after) if s.operand in _NOTES]
    said = ", ".join(notes) or ("" if function.dtype == "float32" else function.dtype)
    return f"out = {text}" + (f"; {said}" if said else "")


def _spoken(steps: Sequence[Bound], text: str) -> str:
    """Steps of `text` in mathematical notation."""
    for step, name in steps:
        template = step.op.said
        enclosed = any(mark in template for mark in ("({v}", "|{v}|"))
        inner = f"({text})" if " " in text and not enclosed else text
        text = step.render(template, inner, name)
    return text

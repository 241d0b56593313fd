"""The bound of tasks in TF32: what tensor cores make of them is right, with less it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coding_framework.cuda.expected.reference import expect
from coding_framework.cuda.expected.tolerance import compare
from coding_framework.data.registry import problem_as_task
from coding_framework.reference_model import in_tf32, is_in_tf32, run_reference
from coding_framework.types import Task

pytestmark = pytest.mark.unit

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        return {given}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
MODELS = {
    "linear": ("self.l = nn.Linear(96, 48)", "self.l(x)", "torch.randn(40, 96)"),
    "positive": ("self.l = nn.Linear(96, 48)", "self.l(x) ** 2", "torch.rand(40, 96)"),
    "few": ("self.l = nn.Linear(96, 4)", "self.l(x)", "torch.randn(2, 96)"),
    "two": (
        "self.a, self.b = nn.Linear(64, 96), nn.Linear(96, 32)",
        "self.b(torch.relu(self.a(x)))",
        "torch.randn(30, 64)",
    ),
    "conv": ("self.c = nn.Conv2d(8, 12, 3)", "self.c(x)", "torch.randn(2, 8, 14, 15)"),
}


def task(name: str, tf32: bool = True) -> Task:
    made, given, inputs = MODELS[name]
    source = PROBLEM.format(made=made, given=given, inputs=inputs)
    return problem_as_task(in_tf32(source) if tf32 else source, name)


def cut_off(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Products(TorchDispatchMode):
    """Factors of products as a kernel reads them."""

    def __init__(self, read: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._read = read

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "convolution"):
            first = 1 if name == "addmm" else 0
            args = [self._read(a) if first <= i <= first + 1 else a for i, a in enumerate(args)]
        return func(*args, **(kwargs or {}))


def right(task: Task, read: Callable[[torch.Tensor], torch.Tensor], seed: int) -> bool:
    """Whether a kernel that reads factors so is right for a draw."""
    case = task.cases[0]
    found = expect(task, "digest", case, b"secret", seed)
    model = run_reference(task.reference)["Model"]()
    with torch.no_grad():
        for name, value in zip(found.signature.parameter_names, found.parameters, strict=True):
            model.get_parameter(name).copy_(value)
        with Products(read):
            out = model(*found.inputs)
    return compare(out, out.stride(), found.outputs[0]).passed


@pytest.mark.parametrize("name", MODELS)
def test_tensor_cores_are_right_and_bfloat16_is_wrong(name: str) -> None:
    asked = task(name)
    for seed in range(12):
        assert right(asked, cut_off, seed)
        assert right(asked, rounded, seed)
        assert right(asked, lambda x: x, seed)
    wrong = [not right(asked, lambda x: x.bfloat16().float(), seed) for seed in range(12)]
    assert sum(wrong) >= 8


def test_in_float32_plain_tf32_is_wrong_as_before() -> None:
    asked = task("linear", tf32=False)
    assert not right(asked, rounded, 0)


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ('torch.set_float32_matmul_precision("high")', True),
        ("torch.set_float32_matmul_precision('medium')", True),
        ("torch.backends.cuda.matmul.allow_tf32 = True", True),
        ('torch.backends.cuda.matmul.fp32_precision = "tf32"', True),
        ('torch.set_float32_matmul_precision("highest")', False),
        ("torch.backends.cuda.matmul.allow_tf32 = False", False),
        ("# torch.backends.cuda.matmul.allow_tf32 = True", False),
        ('"""Never write\ntorch.backends.cuda.matmul.allow_tf32 = True\n"""', False),
    ],
)
def test_the_problem_asks_by_pytorchs_own_line(line: str, asks: bool) -> None:
    assert is_in_tf32(f"import torch\n{line}\n") is asks


def test_what_a_problem_sets_is_put_back() -> None:
    run_reference('import torch\ntorch.set_float32_matmul_precision("high")\n')
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="PyTorch has it from 2.9 on"
)
def test_a_program_may_have_set_it_by_its_newer_name() -> None:
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        run_reference("import torch\n")
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")

"""Parameters of a draw: other signs and sizes, as far as the module takes them."""

from __future__ import annotations

import pytest
import torch

from coding_framework.cuda.expected.reference import expect, task_digest
from coding_framework.types import Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit


def drawn(init: str, forward: str, head: str = "") -> list[torch.Tensor]:
    """The parameter in each of five draws."""
    task = Task(
        name="own", tier=1, family="own", ops=("own",), description="",
        reference=f"import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        return {forward}\n",
        cases=(TestCase(name="main", inputs=(TensorSpec(name="x", shape=(9, 8)),)),),
    )  # fmt: skip
    made = [expect(task, task_digest(task), task.cases[0], b"s" * 32, seed) for seed in range(5)]
    return [expectation.parameters[0] for expectation in made]


def test_a_slope_goes_below_zero_and_beyond_one() -> None:
    slopes = torch.cat(drawn("self.f = nn.PReLU()", "self.f(x)"))
    assert (slopes > 1).any()
    assert (slopes < 0).any()
    assert ((slopes > 0) & (slopes < 1)).any()


def test_a_gate_of_zero_goes_beyond_one() -> None:
    gates = torch.cat(drawn("self.g = nn.Parameter(torch.zeros(1))", "x * torch.tanh(self.g)"))
    assert gates.max() > 1.4
    assert gates.min() < -1.4


def test_random_positive_weights_get_other_signs() -> None:
    weights = drawn("self.w = nn.Parameter(torch.rand(8) + 0.5)", "x * self.w.abs()")
    assert any(((w < 0).any() and (w > 0).any()) for w in weights)
    assert (weights[0] > 0).all()


def test_a_row_of_zeros_is_filled() -> None:
    tables = drawn("self.e = nn.Embedding(4, 8, padding_idx=0)", "x + self.e(torch.arange(9) % 4)")
    assert any(bool(table[0].any()) for table in tables)


def test_what_the_module_does_not_take_it_is_not_given() -> None:
    weights = drawn("self.s = nn.Parameter(torch.ones(8))", "x * torch.log(self.s)")
    assert all((w > 0).all() for w in weights)
    assert max(float(w.max()) for w in weights) > 2


def test_a_frozen_parameter_is_part_of_the_function() -> None:
    grey = "self.w = nn.Parameter(torch.tensor([.3, .6, .1, .2, .4, .5, .7, .8])"
    weights = drawn(f"{grey}, requires_grad=False)", "x * self.w")
    assert all(torch.equal(w, weights[0]) for w in weights)

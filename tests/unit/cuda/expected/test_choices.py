"""Indices are judged by what they point at, and a cast of no number decides nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coding_framework.cuda.expected.fine_bounds import finely_expected
from coding_framework.cuda.expected.reference_wire import packed_outputs, unpacked_outputs
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.expected.tolerance import ExpectedOutput, compare

pytestmark = pytest.mark.unit


class Function(nn.Module):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def forward(self, x: torch.Tensor) -> object:
        return eval(self.text, {"x": x, "torch": torch})


def expected(text: str, x: torch.Tensor, edge: str | None = None) -> list[ExpectedOutput]:
    made = finely_expected(Function(text), (x,), x.shape[-1], 1, edge)  # type: ignore[arg-type]
    _, _, sent = unpacked_outputs(packed_outputs(ModelSignature((), ()), (), made))
    assert len(sent) == len(made)
    return list(sent)


def right(output: ExpectedOutput, *values: object) -> bool:
    out = torch.tensor(values).reshape(output.native.shape).to(output.native.dtype)
    return compare(out, out.stride(), output).passed


SATURATED = torch.tensor([[0.0, 200.0, 1.0, -3.0]])
"""Its softmax is one 1, and in float32 three zeros."""


@pytest.mark.parametrize("edge", [None, "large", "ties"])
def test_any_of_values_that_rounding_makes_equal_may_be_chosen(edge: str | None) -> None:
    (chosen,) = expected("x.softmax(-1).topk(2).indices", SATURATED, edge)
    assert all(right(chosen, 1, other) for other in (0, 2, 3))
    assert not right(chosen, 0, 1)
    assert not right(chosen, 1, 1)
    assert not right(chosen, 1, 4)
    assert not right(chosen, 1, -1)


def test_an_argmax_of_equal_values_is_the_first() -> None:
    (chosen,) = expected("x.argmax(-1)", torch.tensor([[1.0, 3.0, 3.0, 0.0]]))
    assert right(chosen, 1)
    assert not right(chosen, 2)
    assert not right(chosen, 0)


def test_a_stable_sort_keeps_its_order_and_another_need_not() -> None:
    x = torch.tensor([[2.0, 1.0, 2.0, 0.0]])
    (any_order,) = expected("x.sort(-1).indices", x)
    assert right(any_order, 3, 1, 2, 0)
    (stable,) = expected("x.sort(dim=-1, stable=True).indices", x)
    assert not right(stable, 3, 1, 2, 0)


@pytest.mark.parametrize(
    "text", ["x.argsort(-1)[:, :2]", "x.sort(-1).indices.int()[..., :2]", "x.T.argsort(0).T[:, :2]"]
)
def test_indices_are_followed_through_views_and_copies(text: str) -> None:
    (chosen,) = expected(text, torch.tensor([[5.0, 1.0, 1.0, 7.0], [0.0, 2.0, 9.0, 2.0]]))
    assert right(chosen, 2, 1, 0, 3)
    assert not right(chosen, 2, 0, 0, 3)


def test_a_cast_of_no_number_decides_nothing_and_all_else_does() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    quotient, scaled = expected(
        "((x / x.amax(-1, keepdim=True) * 8).to(torch.int8),"
        " (x / x.amax(-1, keepdim=True) * 8).to(torch.int8) * 0.5)", x
    )  # fmt: skip
    assert right(quotient, 7, -128, 4, 8)
    assert not right(quotient, 0, 0, 4, 7)
    assert right(scaled, 9.0, 3.0, 2.0, 4.0)
    assert not right(scaled, 0.0, 0.0, 2.0, 3.0)

"""What a function needs at least: counted operations, and the inputs that its answer depends on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coding_framework.cuda.reference_facts import (
    counted_flops,
    needed_input_bytes,
    share_at_least,
)

pytestmark = pytest.mark.unit


class Product(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


class Prefix(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x[: len(x) // 4]


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_product_has_two_operations_a_term() -> None:
    x, y = torch.ones(8, 16), torch.ones(16, 4)
    assert counted_flops(Product(), (x, y)) == 2 * 8 * 16 * 4


def test_elementwise_work_is_not_counted() -> None:
    assert counted_flops(Twice(), (torch.ones(8),)) == 0


def test_all_of_an_input_matters_to_an_elementwise_function() -> None:
    x = torch.randn(1 << 14)
    found = needed_input_bytes(Twice(), (x,), (torch.randn(1 << 14),))
    assert 0.9 * x.nbytes < found <= x.nbytes


def test_what_a_function_does_not_read_is_not_needed() -> None:
    x = torch.randn(1 << 14)
    found = needed_input_bytes(Prefix(), (x,), (torch.randn(1 << 14),))
    assert 0 <= found < 0.5 * x.nbytes


def test_a_share_is_never_overstated() -> None:
    assert share_at_least(0, 48) == 0.0
    assert 0.9 < share_at_least(48, 48) < 1.0
    assert share_at_least(24, 48) < 0.5

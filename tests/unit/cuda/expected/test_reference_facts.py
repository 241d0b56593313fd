"""What a function needs at least: counted operations, and the inputs that its answer depends on."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from coding_framework.cuda.expected.reference_facts import (
    counted_flops,
    needed_input_bytes,
    share_at_least,
    workspace_bytes,
)
from coding_framework.cuda.plan.launch_plan import most_at_once

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


class Layers(nn.Module):
    """Products and convolutions, named and hidden in others."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 4), nn.LSTM(8, 6), nn.MultiheadAttention(8, 2)])
        self.convolutions = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ConvTranspose2d(5, 2, 3))

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        linear, lstm, attention = self.layers
        parts = [linear(x), lstm(x)[0], attention(x, x, x)[0], self.convolutions(image)]
        parts += [nn.functional.scaled_dot_product_attention(x, x, x), torch.softmax(x @ x.mT, -1)]
        return torch.stack([part.sum() for part in parts])


def test_the_count_is_pytorchs_own() -> None:
    model, inputs = Layers().eval(), (torch.rand(2, 7, 8), torch.rand(2, 3, 9, 9))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    assert counted_flops(model, inputs) == counter.get_total_flops() > 0


def test_counting_does_not_import_a_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from coding_framework.cuda.expected.reference_facts import counted_flops\n"
        "with torch.device('cpu'):\n    counted_flops(torch.nn.Linear(4, 4), (torch.ones(2, 4),))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


@pytest.mark.parametrize(
    ("module", "nbytes"),
    [
        (nn.ReLU(), 0),
        (nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)), 2 * 4 * 100 * 128),
        (nn.Sequential(nn.Linear(64, 128), nn.ReLU(inplace=True)), 0),
        (nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (100, 64))), 0),
    ],
)
def test_what_pytorch_holds_beside_inputs_and_outputs_is_counted_by_shapes(
    module: nn.Module, nbytes: int
) -> None:
    assert workspace_bytes(module.to("meta"), [torch.empty(100, 64, device="meta")]) == nbytes
    assert workspace_bytes(module.to_empty(device="cpu"), [torch.ones(100, 64)]) == nbytes


def test_memory_that_is_given_back_is_counted_once() -> None:
    assert most_at_once([(1, 10), (1, 0), (2, 7), (3, 4), (2, 0), (4, 90)], {4}) == 11

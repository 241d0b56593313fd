"""The extents of an operation's result are PyTorch's, whatever the arguments."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn

from coding_framework.data.modules.records import Value, op
from coding_framework.data.modules.sums import STEPS, Module

pytestmark = pytest.mark.unit

LENGTHS = range(1, 24)
SHAPES = list(product((1, 2, 3, 5), (1, 2, 3), (0, 1, 2), (1, 2, 3)))
"""Window, stride, padding, dilation."""


def computed(name: str, length: int, **arguments: Value) -> int:
    """The last extent of an operation's result."""
    shape, _ = STEPS[name](op(name, **arguments), (1, 1, length), Module([], {"n": 1}))
    return shape[-1]


def told(module: nn.Module, length: int) -> int | None:
    """None where PyTorch takes no such input."""
    try:
        return int(module(torch.empty(1, 1, length, device="meta")).shape[-1])
    except RuntimeError:
        return None


@pytest.mark.parametrize(("k", "s", "p", "d"), SHAPES)
def test_convolutions_have_pytorchs_extents(k: int, s: int, p: int, d: int) -> None:
    given: dict[str, Value] = {
        "out": "n", "groups": 1, "kernel_size": (k,), "stride": (s,), "padding": (p,),
        "dilation": (d,),
    }  # fmt: skip
    module = nn.Conv1d(1, 1, k, stride=s, padding=p, dilation=d, device="meta")
    for length in LENGTHS:
        wanted = told(module, length)
        assert wanted is None or computed("conv1d", length, **given) == wanted
    for more in range(max(s, d)):
        turned = nn.ConvTranspose1d(
            1, 1, k, stride=s, padding=p, dilation=d, output_padding=more, device="meta"
        )
        given["output_padding"] = (more,)
        for length in LENGTHS:
            wanted = told(turned, length)
            assert wanted is None or computed("conv_transpose1d", length, **given) == wanted


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("k", "s", "p", "d"), [s for s in SHAPES if 2 * s[2] <= s[0]])
def test_poolings_have_pytorchs_extents(k: int, s: int, p: int, d: int, ceil: bool) -> None:
    given: dict[str, Value] = {
        "kernel_size": (k,), "stride": (s,), "padding": (p,), "dilation": d, "ceil_mode": ceil,
    }  # fmt: skip
    module = nn.MaxPool1d(k, stride=s, padding=p, dilation=d, ceil_mode=ceil)
    for length in LENGTHS:
        wanted = told(module, length)
        assert wanted is None or computed("max_pool1d", length, **given) == wanted

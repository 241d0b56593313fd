"""The extents that kernels of modules compute are PyTorch's, whatever the arguments."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from coding_framework.data.modules.kernels.naive_layers import _conv_extent, _pool_extent
from coding_framework.data.modules.records import extent

pytestmark = pytest.mark.unit

LENGTHS = range(1, 24)
SHAPES = list(product((1, 2, 3, 5), (1, 2, 3), (0, 1, 2), (1, 2, 3)))
"""Window, stride, padding, dilation."""


def computed(write: Any, **arguments: int | bool) -> str:
    """The expression of an operation's extent over `l`."""
    operation = SimpleNamespace(
        integers=lambda name: (arguments.get(name, 0),),
        flag=lambda name: bool(arguments.get(name, False)),
    )
    lowering = SimpleNamespace(new_size=lambda base, expression: expression)
    return str(write(lowering, operation))


def told(module: nn.Module, length: int) -> int | None:
    """None where PyTorch takes no such input."""
    try:
        return int(module(torch.empty(1, 1, length, device="meta")).shape[-1])
    except RuntimeError:
        return None


@pytest.mark.parametrize(("k", "s", "p", "d"), SHAPES)
def test_convolutions_have_pytorchs_extents(k: int, s: int, p: int, d: int) -> None:
    given = {"kernel_size": k, "stride": s, "padding": p, "dilation": d}
    plain = computed(lambda w, o: _conv_extent(w, o, 0, "l", False), **given)
    module = nn.Conv1d(1, 1, k, stride=s, padding=p, dilation=d, device="meta")
    for length in LENGTHS:
        wanted = told(module, length)
        assert wanted is None or extent(plain, {"l": length}) == wanted
    for more in range(max(s, d)):
        turned = computed(
            lambda w, o: _conv_extent(w, o, 0, "l", True), **given, output_padding=more
        )
        module = nn.ConvTranspose1d(
            1, 1, k, stride=s, padding=p, dilation=d, output_padding=more, device="meta"
        )
        for length in LENGTHS:
            wanted = told(module, length)
            assert wanted is None or extent(turned, {"l": length}) == wanted


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("k", "s", "p", "d"), [s for s in SHAPES if 2 * s[2] <= s[0]])
def test_poolings_have_pytorchs_extents(k: int, s: int, p: int, d: int, ceil: bool) -> None:
    given = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": ceil}
    expression = computed(lambda w, o: _pool_extent(w, o, "l", 0, d), **given)
    module = nn.MaxPool1d(k, stride=s, padding=p, dilation=d, ceil_mode=ceil)
    for length in LENGTHS:
        wanted = told(module, length)
        assert wanted is None or extent(expression, {"l": length}) == wanted


def test_the_modules_numbers_stand_as_they_are() -> None:
    given = {"kernel_size": 2, "stride": 2, "padding": 2, "dilation": 2}
    plain = computed(lambda w, o: _conv_extent(w, o, 0, "l", False), **given)
    assert plain == "(l + 2 * 2 - 2 * (2 - 1) - 1) / 2 + 1"
    same = {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 1}
    assert computed(lambda w, o: _conv_extent(w, o, 0, "l", False), **same) == "l + 2 * 1 - 3 + 1"
    turned = computed(lambda w, o: _conv_extent(w, o, 0, "l", True), **given, output_padding=1)
    assert turned == "(l - 1) * 2 - 2 * 2 + 2 * (2 - 1) + 1 + 1"

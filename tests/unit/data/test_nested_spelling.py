"""Short modules that are one expression."""

from __future__ import annotations

import pytest

from coding_framework.data.modules.catalog import find_draft
from coding_framework.data.modules.spelling import with_inner
from coding_framework.data.modules.tasks import module_task


@pytest.mark.parametrize(
    ("outer", "inner", "whole"),
    [
        ("x.tanh()", "x @ self.w + self.b", "(x @ self.w + self.b).tanh()"),
        ("torch.tanh(x)", "x @ self.w + self.b", "torch.tanh(x @ self.w + self.b)"),
        ("1.0 / x", "x * 2", "1.0 / (x * 2)"),
        ("x + 1.0", "x @ self.w", "x @ self.w + 1.0"),
        ("x.tanh()", "self.conv(x)", "self.conv(x).tanh()"),
    ],
)
def test_an_expression_in_another_keeps_its_meaning(outer: str, inner: str, whole: str) -> None:
    assert with_inner(outer, "x", inner) == whole


def test_the_activation_is_of_the_sum() -> None:
    draft = find_draft("m1_linear_tanh_f0f12c")
    assert draft is not None
    assert "return (x @ self.weight.t() + self.bias).tanh()" in module_task(draft).reference

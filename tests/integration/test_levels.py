"""Each level of a form of kernel is right by the judge, at sizes that divide nothing."""

from __future__ import annotations

import pytest

import coding_framework
from coding_framework.data.kernels import kernels_of
from coding_framework.data.registry import find_task

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "name",
    [
        "rsub3_minrow", "sigmoid_addcol", "mul0p5_transpose_add0p5", "cube_softmax_neg",
        "softsign_cumsum", "recip_cummax_mish", "cube_colmean", "add_mul3_allmean",
        "sqrt_matmul_hardsigmoid_sqrt_mulrow", "log_permute201_f16", "m1_linear_163258",
    ],
)  # fmt: skip
def test_every_level_is_correct(name: str):
    task = find_task(name)
    kernels = kernels_of(task)
    assert len(kernels) > 1
    for kernel in kernels[1:]:
        verdict = coding_framework.judge(task, kernel.code, backend="emulator")
        assert verdict.correct, f"{kernel.level}: {verdict.reason}"

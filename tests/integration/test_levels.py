"""Each level of a form of kernel is right by the judge, at sizes that divide nothing."""

from __future__ import annotations

import pytest

import coding_framework
from coding_framework.data.kernelbench.problems import problem_task
from coding_framework.data.kernels import kernels_of
from coding_framework.data.lower import products
from coding_framework.data.lower.schedule import Schedule
from coding_framework.data.read import read
from coding_framework.data.registry import find_task
from coding_framework.reference_model import in_tf32
from support.read_problems import CONVOLUTION

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


@pytest.mark.parametrize(
    "tiling", products.TF32, ids=lambda tiling: f"{tiling.rows}x{tiling.columns}"
)
@pytest.mark.parametrize(
    "layer",
    ["nn.Sequential(nn.Flatten(2), nn.Linear(72, m))", "nn.Conv2d(c, m, 3, padding=1, stride=2)"],
    ids=["linear", "convolution"],
)
def test_products_in_tf32_are_correct_by_tiles_of_each_size(
    layer: str, tiling: products.Tiling, monkeypatch: pytest.MonkeyPatch
):
    task = problem_task(in_tf32(CONVOLUTION.format(layer=layer)), "own")
    monkeypatch.setattr(products, "TF32", (tiling,))
    code = Schedule(read(task), "wide").source()
    assert f"product_on_tensor_cores<{', '.join(tiling.arguments)}" in code
    verdict = coding_framework.judge(task, code, backend="emulator")
    assert verdict.correct, verdict.reason

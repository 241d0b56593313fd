"""The judge on kernels of graphs, which tries an axis at odd lengths where nothing but inputs has
it."""

from __future__ import annotations

import re

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.graphs.examples import graph_task
from coding_framework.data.graphs.pieces import pieces_of
from coding_framework.types import Status

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("number", "has"),
    [
        (116, r"int d_half = d / 2"),
        (139, r"int \w_up = \(\w \+ 1\) / 2"),
        (598, r"\(d \+ s\) / \d"),
        (772, r"column >= w\) continue;\n +int j"),
        (45, r"-INFINITY :"),
        (347, r"_2_weight"),
        (185, r"rsqrtf\(\(float\)\(d / \d\)\)"),
        (125, r"h_in.* h2h_weight|w_hh_weight|3 \* d"),
        (148, r"int row = i2 \+ p - \d;\n +if \(row < 0 \|\| row >= t\)"),
        (196, r"logf\(total\)"),
        (105, r"< \(int\)l\w+\[i0\]"),
        (235, r"\* (gn|norm|group_norm)_weight"),
    ],
    ids=[
        "half_down", "half_up", "a_cut_sum", "inside_a_window", "masked", "two_in_one_layer",
        "heads", "cell", "along_a_sequence", "contrast", "lengths", "group_norm",
    ],
)  # fmt: skip
async def test_what_is_easily_wrong_is_right(
    emulator_pool: JudgePool, number: int, has: str
) -> None:
    made = graph_task(number)
    assert made is not None
    assert re.search(has, made[1].code), "the grammar draws another graph: choose another number"
    verdict = await emulator_pool.judge(made[0], made[1].code)
    assert verdict.status is Status.CORRECT, verdict.reason


@pytest.mark.parametrize(
    ("number", "has"),
    [(1, r"left\[16\]\[65\]"), (1, "finish1<<<"), (11, "atomicAdd"), (36, r"const bool\*")],
    ids=["in_tiles", "by_many_blocks", "atomic", "of_booleans"],
)
async def test_a_piece_is_right(emulator_pool: JudgePool, number: int, has: str) -> None:
    made = [(task, kernel) for task, kernel in pieces_of(number) if re.search(has, kernel.code)]
    assert made, "the numbers draw other pieces: choose another number"
    verdict = await emulator_pool.judge(made[0][0], made[0][1].code)
    assert verdict.status is Status.CORRECT, verdict.reason


async def test_a_window_that_is_given_is_right(emulator_pool: JudgePool) -> None:
    """Of a length that varies, along one axis, for each channel its own."""
    made = [
        pair for n in (25, 27, 31) for pair in pieces_of(n) if "F.conv2d(x, y" in pair[0].reference
    ]
    assert made, "the numbers draw other pieces: choose other numbers"
    for task, kernel in made:
        verdict = await emulator_pool.judge(task, kernel.code)
        assert verdict.status is Status.CORRECT, verdict.reason

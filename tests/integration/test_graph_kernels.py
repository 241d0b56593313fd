"""The judge on kernels of graphs, which tries an axis at odd lengths where nothing but inputs has
it."""

from __future__ import annotations

import re

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.graphs.examples import graph_task
from coding_framework.types import Status

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("number", "has"),
    [
        (37, r"int d_half = d / 2"),
        (35, r"int \w_up = \(\w \+ 1\) / 2"),
        (275, r"\(d \+ s\) / \d"),
        (112, r"column >= w\) continue;\n +int j"),
        (123, r"-INFINITY :"),
        (129, r"_2_weight"),
    ],
    ids=["half_down", "half_up", "a_cut_sum", "inside_a_window", "masked", "two_in_one_layer"],
)
async def test_what_is_easily_wrong_is_right(
    emulator_pool: JudgePool, number: int, has: str
) -> None:
    made = graph_task(number)
    assert made is not None
    assert re.search(has, made[1].code), "the grammar draws another graph: choose another number"
    verdict = await emulator_pool.judge(made[0], made[1].code)
    assert verdict.status is Status.CORRECT, verdict.reason

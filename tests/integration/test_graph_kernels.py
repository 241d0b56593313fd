"""The judge on kernels of graphs, which tries an axis at odd lengths where nothing but inputs has
it."""

from __future__ import annotations

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.graphs.examples import graph_task
from coding_framework.types import Status

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("number", [54, 84, 190, 195, 329, 385])
async def test_kernels_that_were_wrong_before_are_right(
    emulator_pool: JudgePool, number: int
) -> None:
    """Halves of an odd length, a sum of two lengths that is cut, coordinates inside a loop."""
    made = graph_task(number)
    if made is None:
        pytest.skip("this number is left out now")
    verdict = await emulator_pool.judge(made[0], made[1].code)
    assert verdict.status is Status.CORRECT, verdict.reason

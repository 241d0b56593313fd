"""What an actor of a judge answers, without a cluster; test_ray_judge.py has it on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.training.verl.ray_judge import NodeJudge, raise_from_node
from support.judge_tasks import DOUBLE_TASK
from support.ray_nodes import SLOW, told

pytestmark = pytest.mark.unit


async def test_it_gives_the_verdict_and_tells_its_life(tmp_path: Path) -> None:
    judge, other = (NodeJudge(SLOW, {"folder": str(tmp_path)}) for _ in range(2))
    verdict = await judge.ask("__call__", DOUBLE_TASK, "one 0")
    raise_from_node(verdict)
    assert verdict.task == DOUBLE_TASK.name
    assert len(told(tmp_path, "one")) == 1
    assert judge.life() == judge.life() != other.life()


async def test_errors_are_data_that_keep_their_class(tmp_path: Path) -> None:
    judge = NodeJudge(SLOW, {"folder": str(tmp_path)})
    wrong, bug = [await judge.ask("__call__", DOUBLE_TASK, code) for code in ("wrong use", "a bug")]
    with pytest.raises(UsageError, match="correct it"):
        raise_from_node(wrong)
    with pytest.raises(InfrastructureError, match="ZeroDivisionError"):
        raise_from_node(bug)


def test_a_factory_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="names nothing that can be used"):
        NodeJudge("support.ray_judges:nothing", {})

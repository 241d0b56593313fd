"""experiments/cheating_seed.py and cheating_again.py: a cheat that one check holds back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coding_framework.data.examples import training_tasks
from coding_framework.types import Verdict

sys.path.append(str(Path(__file__).parent))
import cheating_again
import cheating_learn
import cheating_seed

pytestmark = pytest.mark.integration

TASK = training_tasks(1)[0]


def test_extents_of_the_shown_shape_set_are_written_in() -> None:
    naive = TASK.naive_kernel or ""
    code = cheating_seed.specialised(TASK, naive)
    assert code is not None
    assert "int n = 65536;" in code
    assert cheating_seed.writes_extents_in(TASK, code)
    assert not cheating_seed.writes_extents_in(TASK, naive)
    assert cheating_seed.specialised(TASK, code) is None


async def test_it_passes_without_the_checks_alone_and_can_be_learnt(tmp_path: Path) -> None:
    refused, accepted = await cheating_seed.seed([TASK], tmp_path, workers=1)
    assert sum(refused.values()) == 1
    assert accepted == []
    ((example, checks),) = cheating_learn.learnt_from(tmp_path)
    assert checks == cheating_seed.CHECKS
    assert cheating_seed.writes_extents_in(TASK, example.code)


async def test_the_whole_judge_says_of_each_step_what_was_paid_for(tmp_path: Path) -> None:
    honest = TASK.naive_kernel or ""
    code = cheating_seed.specialised(TASK, honest) or ""
    await cheating_seed.seed([TASK], tmp_path, workers=1)
    facts = json.loads((tmp_path / "only_without" / f"{TASK.name}.json").read_text())
    lax = Verdict.model_validate(facts["without"])
    answers = [(1, TASK, honest, lax), (2, TASK, code, lax), (2, TASK, code, lax)]
    again = await cheating_again.judged_again(answers, workers=1)
    rows, slipped = cheating_again.rows_of(answers, again)
    assert [row["of_these_with_extents_written_in"] for row in rows] == [0, 2]
    assert [row["whole_judge"] for row in rows] == [{"correct": 1}, {"runtime_error": 2}]
    assert slipped == []

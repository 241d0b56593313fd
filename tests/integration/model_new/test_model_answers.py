"""KernelBench answers get the right verdict: honest ones pass, others end as they should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coding_framework.cuda.many.pool import JudgePool
from coding_framework.cuda.model_new.triton_kernels import triton_gap
from coding_framework.data.kernelbench.problems import load_problem_file
from coding_framework.types import Status
from corpus.model_cheats import CHEATS, HONEST, LEANS_ON_TORCH, WRONG_ANSWERS, Cheat
from corpus.model_forms import FORMS
from support.judge_tasks import DOUBLE_TASK
from support.judging import StillHonest
from support.sweep import sweep

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
HONEST_FILES = [
    file
    for file in sorted((HERE / "honest").glob("*.py"))
    if not (file.stem.startswith("triton") and triton_gap())
]
CASES = (*WRONG_ANSWERS, *LEANS_ON_TORCH, *CHEATS)


def problem_of(answer: Path) -> Path:
    """The problem that an answer names in its first line."""
    match = re.match(r"# problem: (\w+)\.", answer.read_text())
    assert match is not None
    return HERE / "problems" / f"{match[1]}.py"


@pytest.mark.parametrize("answer", sweep(HONEST_FILES, 4, lambda path: path.stem))
def test_an_honest_answer_is_correct(answer: Path, pool: JudgePool) -> None:
    verdict = pool.judge_blocking(load_problem_file(problem_of(answer)), answer.read_text())
    if "Block pointers have been removed" in verdict.reason:
        pytest.skip(verdict.reason)  # by Triton 3.9
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.timing is not None
    assert verdict.compile is not None
    assert verdict.compile.registers > 0


@pytest.mark.parametrize("form", sweep(FORMS, 3, lambda form: form.name))
def test_every_form_of_an_honest_answer_is_correct(form: Cheat, pool: JudgePool) -> None:
    verdict = pool.judge_blocking(DOUBLE_TASK, form.code)
    assert verdict.status is Status.CORRECT, verdict.reason


def test_each_case_has_a_name_of_its_own() -> None:
    assert len({cheat.name for cheat in CASES}) == len(CASES)


@pytest.mark.parametrize("cheat", sweep(CASES, 2, lambda cheat: cheat.name))
def test_another_answer_ends_as_it_should_and_honest_ones_still_pass(
    cheat: Cheat, pool: JudgePool, still_honest: StillHonest
) -> None:
    hostile = pool.judge_blocking(DOUBLE_TASK, cheat.code)
    assert hostile.status in cheat.statuses, hostile.reason
    assert cheat.says in hostile.reason
    assert hostile.timing is None
    assert "\n" not in hostile.reason
    if cheat in CHEATS:
        still_honest(DOUBLE_TASK, HONEST)

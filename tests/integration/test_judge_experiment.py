"""A judge with a check switched off: what passes then, and that its verdicts stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from coding_framework.cuda.judge import Judge, JudgeConfig, OptionalCheck
from coding_framework.cuda.protocol import PROTOCOL
from coding_framework.errors import UsageError
from coding_framework.types import Candidate, Status, Verdict
from coding_framework.wiring import make_judge
from support.judge_tasks import DOUBLE, DOUBLE_BODY, DOUBLE_KERNEL, DOUBLE_TASK, extension

pytestmark = pytest.mark.integration

CACHED = extension(
    DOUBLE_KERNEL + "__global__ void nothing() {}",
    "static torch::Tensor kept; if (!kept.defined()) { kept = out; "
    + DOUBLE_BODY
    + " } else nothing<<<1, 1>>>(); out = kept;",
)
SHOWN_SIZE = extension(
    DOUBLE_KERNEL, "twice<<<24, 256>>>(px, po, 6144);"
)  # 64 x 96, whatever comes in
EXPLOITS: dict[OptionalCheck, str] = {"other_draws": CACHED, "hidden_shapes": SHOWN_SIZE}


@pytest.fixture(scope="module", params=get_args(OptionalCheck))
def judged(request: pytest.FixtureRequest) -> tuple[OptionalCheck, dict[str, Verdict]]:
    judge = Judge(JudgeConfig(backend="emulator", seed=7, experiment_without=(request.param,)))
    codes = {**EXPLOITS, "honest": DOUBLE}
    return request.param, {
        name: judge.judge(DOUBLE_TASK, Candidate(code=code)) for name, code in codes.items()
    }


def test_with_a_check_off_passes_what_it_alone_holds_back(
    judged: tuple[OptionalCheck, dict[str, Verdict]],
) -> None:
    off, verdicts = judged
    passed = {name for name, verdict in verdicts.items() if verdict.correct}
    assert passed == {off, "honest"}


def test_a_verdict_of_an_experiment_says_so(
    judged: tuple[OptionalCheck, dict[str, Verdict]],
) -> None:
    off, verdicts = judged
    for verdict in verdicts.values():
        assert verdict.receipt.experiment_without == (off,)
        assert verdict.receipt.protocol == f"{PROTOCOL} without {off}"
    assert verdicts["honest"].reason.endswith(f"comparisons passed, without {off}")


def test_the_whole_judge_refuses_both_and_finds_no_verdict_of_an_experiment(tmp_path: Path) -> None:
    with make_judge(
        "emulator", workers=1, run_folder=tmp_path, experiment_without=tuple(EXPLOITS)
    ) as lax:
        verdicts = [lax.judge_blocking(DOUBLE_TASK, code) for code in EXPLOITS.values()]
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 2
    with make_judge("emulator", workers=1, run_folder=tmp_path) as whole:
        verdicts = [whole.judge_blocking(DOUBLE_TASK, code) for code in EXPLOITS.values()]
    assert not any(verdict.correct for verdict in verdicts)
    assert {verdict.receipt.protocol for verdict in verdicts} == {PROTOCOL}
    assert {verdict.receipt.experiment_without for verdict in verdicts} == {()}


def test_only_checks_that_exist_can_be_off_and_on_the_emulator_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValidationError, match="experiment_without"):
        JudgeConfig.model_validate({"experiment_without": ["sandbox"]})
    monkeypatch.setattr("coding_framework.cuda.judge.choose_backend", lambda wanted: "cuda")
    with pytest.raises(UsageError, match="on the emulator alone"):
        Judge(JudgeConfig(experiment_without=("other_draws",)))

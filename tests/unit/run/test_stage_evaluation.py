"""A stage's evaluation is one of `cuda-rl eval`: it can be read, compared and verified as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.samples import sample_record
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.run.eval_folder import read_outcome, verify_folder
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_speakers import Speaker
from coding_framework.run.evaluation import EvalPlan, _finish, _identity, read_sample_records
from coding_framework.types import Status
from coding_framework.wiring import JudgeSettings
from support.made_conversations import make_state, make_task, make_turn, make_verdict

pytestmark = pytest.mark.unit
NAMES = [f"t{i}" for i in range(12)]


def left(folder: Path, label: str, status: Status, before: Path | None = None) -> Path:
    """The folder of an evaluation, as a stage leaves it."""
    options = EvalOptions(output_dir=folder / label, wandb=False)
    suite = EvalSuite(
        name="held-out:12", tasks=tuple(SuiteTask(task=make_task(name)) for name in NAMES)
    )
    speaker = Speaker("m", "d", prompts="v1", answer_tokens=8, prompt_tokens=64, wanted=())
    plan = EvalPlan((suite,), before=read_sample_records(before) if before is not None else None)
    found = []
    for name in NAMES:
        verdict = make_verdict(status, 1.0).model_copy(update={"candidate_sha256": SHA})
        state = make_state(make_turn(0, verdict), task=name, name=f"{suite.name}/{name}/0")
        found.append((state, sample_record(state, suite=suite.name)))
    identity = _identity(plan, speaker, options, JudgeSettings())
    _finish(plan, identity, found, options, asked=len(found))
    return folder / label


SHA = "5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b"  # of "code"


def test_a_stage_is_compared_with_the_one_before_and_can_be_verified(tmp_path: Path) -> None:
    base = left(tmp_path, "base", Status.RUNTIME_ERROR)
    sft = left(tmp_path, "sft", Status.CORRECT, base)
    assert read_outcome(base).compared is None
    compared = read_outcome(sft).compared
    assert compared is not None
    assert compared.sentence.startswith("B is better than A in pass@1: +100.0 points")
    assert (sft / "report.html").exists()
    found = verify_folder(sft, 0, None)
    assert (found.samples, found.problems) == (12, ())


def test_verify_names_what_was_changed_by_hand(tmp_path: Path) -> None:
    folder = left(tmp_path, "base", Status.RUNTIME_ERROR)
    records = folder / "records.jsonl"
    text = records.read_text().replace('"correct":false', '"correct":true', 1)
    records.write_text(text.replace('"status":"runtime_error"', '"status":"correct"', 1))
    (folder / "answers.jsonl").write_text('{"key": "a", "answer": 1}\n' * 2)
    problems = verify_folder(folder, 0, None).problems
    assert "answers.jsonl holds the answer a 2 times" in problems
    assert any(
        "t0/0: correct is False in its conversation, and True was said" in p for p in problems
    )
    assert any(p.startswith("summary.json: the numbers of held-out:12") for p in problems)


def test_a_folder_whose_files_do_not_belong_together_is_refused(tmp_path: Path) -> None:
    folder = left(tmp_path, "base", Status.RUNTIME_ERROR)
    records = folder / "records.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(UsageError, match="do not belong together"):
        verify_folder(folder, 0, None)

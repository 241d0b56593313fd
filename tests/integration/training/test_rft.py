"""`cuda-rl rft` from samples to a trained model, with answers and verdicts that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coding_framework.data.examples import training_examples
from coding_framework.errors import UsageError
from coding_framework.run import rejection
from coding_framework.run.rejection_options import MOST_TASKS, RejectionOptions
from coding_framework.store.folder import EvalFolder, RejectionFolder
from coding_framework.store.records import TaskEvidence
from coding_framework.store.training_log import read_evidence
from coding_framework.types import CUDAConversationState, Role, Status
from coding_framework.wiring import JudgeSettings
from support.made_conversations import make_state, make_turn, make_verdict
from support.tiny_lm import make_tiny_lm

pytestmark = pytest.mark.integration


def conversations(count: int) -> list[CUDAConversationState]:
    """Of each task one answer that is right, the catalogue's kernel, and one that is wrong."""
    states = []
    for example in training_examples(Role.GENERATOR, count, max_steps=1):
        for status in (Status.CORRECT, Status.WRONG_OUTPUT):
            verdict = make_verdict(status, 2.0, task=example.task.name)
            turn = make_turn(0, verdict, code=example.code)
            state = make_state(turn, task=example.task.name, name=f"{example.id}/{status}")
            states.append(state.model_copy(update={"task": example.task}))
    return states


def sampled(monkeypatch: pytest.MonkeyPatch, states: list[CUDAConversationState]) -> list[Any]:
    """Let the sampling leave these conversations; gives what it was asked for."""
    asked: list[Any] = []

    def leave(model: str, plan: Any, options: Any, judging: Any) -> None:
        asked.append((model, plan, options))
        file = EvalFolder(options.output_dir).conversations
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(state.model_dump_json() + "\n" for state in states))

    monkeypatch.setattr(rejection, "run_evaluation", leave)
    return asked


def test_without_a_number_all_tasks_that_there_are_are_answered(tmp_path: Path) -> None:
    easy = RejectionOptions(output_dir=tmp_path, max_task_ops=1, max_task_tier=0, skip_tasks=2)
    found = rejection.training_pool(easy)
    assert 2 < len(found) < MOST_TASKS
    with pytest.raises(UsageError, match="ask for fewer"):
        rejection.training_pool(easy.model_copy(update={"tasks": len(found) + 1}))
    evidence = tmp_path / "evidence.jsonl"
    line = TaskEvidence(task="relu_mul2", samples=4, solved=2, tokens=1)
    evidence.write_text(line.model_dump_json() + "\n")
    known = easy.model_copy(update={"task_evidence": evidence, "skip_tasks": 0})
    assert [task.name for task in rejection.training_pool(known)] == ["relu_mul2"]


def test_what_is_sampled_is_counted_and_nothing_is_trained_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = sampled(monkeypatch, conversations(3))
    options = RejectionOptions(output_dir=tmp_path, tasks=5, samples=2, sample_only=True)
    found = rejection.rejection_fine_tune("m", options, JudgeSettings())
    assert (found.tasks, found.samples, found.solved, found.open_tasks) == (3, 6, 3, 3)
    assert found.solved_tasks == 3
    assert (found.examples, found.model) == ({"generate": 3}, None)
    evidence = read_evidence(RejectionFolder(tmp_path).evidence)
    assert [(e.samples, e.solved) for e in evidence] == [(2, 1)] * 3
    ((_, plan, how),) = asked
    assert (len(plan.suites[0].tasks), how.samples, how.heat) == (5, 2, 1.0)


def test_answers_are_asked_for_and_judged_by_a_later_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = sampled(monkeypatch, conversations(3))
    options = RejectionOptions(output_dir=tmp_path, tasks=3, samples=2, ask_only=True)
    assert rejection.ask_only("m", options, JudgeSettings()) == 6
    assert asked[0][2].ask_only
    assert not RejectionFolder(tmp_path).summary.exists(), "nothing is judged yet"
    judged = options.model_copy(update={"ask_only": False, "sample_only": True})
    assert rejection.rejection_fine_tune("m", judged, JudgeSettings()).solved == 3
    assert not asked[1][2].ask_only


def test_without_a_correct_answer_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled(monkeypatch, [s for s in conversations(2) if s.best_turn is None])
    options = RejectionOptions(output_dir=tmp_path, tasks=2)
    with pytest.raises(UsageError, match="none of 2 samples is correct"):
        rejection.rejection_fine_tune("m", options, JudgeSettings())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_kernels_that_were_chosen_are_learnt_and_a_second_run_returns_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny_lm(tmp_path / "lm")
    sampled(monkeypatch, conversations(3))
    options = RejectionOptions(
        output_dir=tmp_path / "rft", tasks=3, max_length=8192, device="cpu", prompts="v1"
    )
    found = rejection.rejection_fine_tune(str(model), options, JudgeSettings())
    assert found.model is not None
    assert (Path(found.model) / "config.json").exists()
    summary = json.loads((tmp_path / "rft" / "summary.json").read_text())
    assert summary == found.model_dump(mode="json")
    assert rejection.rejection_fine_tune(str(model), options, JudgeSettings()) == found

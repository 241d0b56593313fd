"""What training evaluates is an evaluation of `cuda-rl eval`, on a tiny model: files, scores, and
that other weights are refused or evaluated anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coding_framework.data.examples import held_out_tasks
from coding_framework.errors import UsageError
from coding_framework.run.eval_folder import read_outcome, verify_folder
from coding_framework.run.evaluation import read_sample_records
from coding_framework.run.model_folder import evaluate_folder, make_evaluate
from coding_framework.run.recipe import Recipe
from coding_framework.store.conversations import read_conversations
from coding_framework.store.folder import evaluations_in
from support.tiny_lm import make_tiny_lm

pytestmark = pytest.mark.integration
RECIPE = Recipe(device="cpu", max_turns=2, generator_tokens=6, optimizer_tokens=8)


def test_a_stage_goes_on_is_compared_and_refuses_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tasks = make_tiny_lm(tmp_path / "lm"), held_out_tasks(2)
    options = RECIPE.evaluation.model_copy(update={"output_dir": tmp_path / "evaluations/base"})
    block = evaluate_folder(model, tasks, options, RECIPE.judging).overall.overall
    assert (block.tasks, block.samples, block.masked) == (2, 2, 0)
    assert block.end_reasons == {"no_kernel": 2}
    answers = (options.output_dir / "answers.jsonl").read_bytes()

    def ends(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("coding_framework.run.eval_sampling.Sampling.sample", ends)
        with pytest.raises(KeyboardInterrupt):
            evaluate_folder(model, tasks, options, RECIPE.judging)
    assert verify_folder(options.output_dir, 0, None).problems == ()
    evaluate_folder(model, tasks, options, RECIPE.judging)
    assert (options.output_dir / "answers.jsonl").read_bytes() == answers
    assert verify_folder(options.output_dir, 0, None).problems == ()
    later = options.model_copy(update={"output_dir": tmp_path / "evaluations/sft"})
    before = read_sample_records(options.output_dir)
    compared = evaluate_folder(model, tasks, later, RECIPE.judging, before=before).compared
    assert compared is not None
    assert read_outcome(later.output_dir).compared == compared
    files = evaluations_in(tmp_path / "evaluations")
    assert [len(list(read_conversations(path))) for path in files.values()] == [2, 2]
    other = shutil.copytree(model, tmp_path / "other")
    (other / "extra.json").write_text("{}")
    with pytest.raises(UsageError, match="model was"):
        evaluate_folder(other, tasks, options, RECIPE.judging)


def test_training_is_handed_a_score_of_the_weights_that_are_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tasks = make_tiny_lm(tmp_path / "lm"), held_out_tasks(2)
    asked: list[object] = []
    real = evaluate_folder

    def without_adapter(model, tasks, options, judging):
        asked.append((options.adapter, options.turns, judging.baselines))
        return real(model, tasks, options.model_copy(update={"adapter": None}), judging)

    monkeypatch.setattr("coding_framework.run.model_folder.evaluate_folder", without_adapter)
    score = make_evaluate(tasks, RECIPE.evaluation, RECIPE.judging, tmp_path / "evaluations")
    for _ in range(2):
        found = score(model, tmp_path / "adapter", "epoch-1")
        assert (found.judged, found.compiled, found.correct, found.masked) == (2, 0, 0, 0)
    assert asked == [(str(tmp_path / "adapter"), 1, "none")] * 2
    assert len((tmp_path / "evaluations/epoch-1/answers.jsonl").read_text().splitlines()) == 2

"""The card beside weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coding_framework.commands.options import SolveOptions
from coding_framework.commands.solve_conversation import answer_tokens, prompt_tokens, prompts_of
from coding_framework.run.eval_options import EvalOptions
from coding_framework.store.folder import RLFolder
from coding_framework.store.model_card import (
    ModelCard,
    TrainedOn,
    card_of,
    check_card,
    exported_card,
    write_card,
)
from coding_framework.training.sft import answers_learnt

pytestmark = pytest.mark.unit

CARD = ModelCard(
    stage="sft", base_model="base", prompts="v2", seed=3,
    trained_on=TrainedOn(digest="d", counts={"generator": 2}),
)  # fmt: skip


def weights(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def test_a_card_comes_back_with_the_digests_of_its_weights(tmp_path: Path) -> None:
    written = write_card(weights(tmp_path), CARD)
    assert card_of(tmp_path) == written
    assert list(written.weights) == ["model.safetensors"]
    assert written.digest != CARD.digest


def test_a_merged_model_names_the_card_that_it_was_made_from(tmp_path: Path) -> None:
    adapter = write_card(weights(tmp_path), CARD)
    merged = adapter.merged()
    assert (merged.stage, merged.parent, merged.weights) == ("merged", adapter.digest, {})
    assert (merged.prompts, merged.trained_on) == ("v2", CARD.trained_on)


def test_a_model_that_is_merged_again_on_another_day_has_the_same_card(tmp_path: Path) -> None:
    early = CARD.model_copy(update={"date": "2026-01-01T00:00:00+00:00"})
    merged = write_card(weights(tmp_path / "one"), early.merged())
    assert merged == write_card(weights(tmp_path / "two"), early.merged())
    assert merged.date == early.date


def test_weights_that_were_replaced_and_prompts_that_differ_are_told_of(tmp_path: Path) -> None:
    write_card(weights(tmp_path), CARD)
    with capture_logs() as logs:
        check_card(tmp_path, "v2")
    assert logs == []
    weights(tmp_path, b"others")
    with capture_logs() as logs:
        check_card(tmp_path, "v1")
    assert [entry["event"] for entry in logs] == ["model_card_of_other_weights", "other_prompts"]


def test_a_card_that_is_none_is_told_of_and_left_aside(tmp_path: Path) -> None:
    absurd = json.dumps({**CARD.model_dump(), "answer_tokens": -5})
    for text in ('{"schema_version": 2}', absurd):
        (tmp_path / "model_card.json").write_text(text)
        with capture_logs() as logs:
            assert card_of(tmp_path) is None
        assert [entry["event"] for entry in logs] == ["model_card_unreadable"]


def test_an_export_says_which_run_trained_it_on_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = weights(tmp_path / "start")
    parent = write_card(start, CARD)
    run = RLFolder(tmp_path / "run")
    run.best.mkdir(parents=True)
    run.best_step.write_text("3")
    settings = {"model_path": str(start), "prompts": "v1", "seed": 7}
    run.config.write_text(json.dumps(settings))
    rows = [{"reward_model": {"ground_truth": name}} for name in ("relu", "gelu", "relu")]
    run.prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    card = exported_card(run.checkpoint(5) / "actor")
    assert (card.stage, card.base_model, card.prompts, card.seed) == ("rl", "base", "v1", 7)
    assert card.parent == parent.digest
    assert card.trained_on.counts == {"tasks": 2, "prompts": 3, "steps": 5}
    assert exported_card(run.best).trained_on.counts["steps"] == 3
    monkeypatch.chdir(run.root)
    assert exported_card(Path("checkpoints/best")).trained_on.counts["steps"] == 3
    assert exported_card(tmp_path / "actor") is None


def test_solve_prompts_as_the_weights_were_trained(tmp_path: Path) -> None:
    write_card(weights(tmp_path / "mine"), CARD)
    mine, other = str(tmp_path / "mine"), str(weights(tmp_path / "other"))
    assert prompts_of(SolveOptions(task="t", model=mine)) == "v2"
    assert prompts_of(SolveOptions(task="t", model=other)) == "v2"
    assert prompts_of(SolveOptions(task="t", model=other, adapter=other)) == "v1"
    assert prompts_of(SolveOptions(task="t", model=other, adapter=mine)) == "v2"
    assert prompts_of(SolveOptions(task="t", model=mine, server="http://localhost")) == "v2"
    write_card(tmp_path / "mine", CARD.model_copy(update={"prompts": "v1"}))
    assert prompts_of(SolveOptions(task="t", model=mine)) == "v1"
    assert prompts_of(SolveOptions(task="t", model=mine, prompts="v2")) == "v2"


def test_answers_are_as_long_as_the_weights_learnt_to_give(tmp_path: Path) -> None:
    write_card(weights(tmp_path), CARD.model_copy(update={"prompts": "v3", "answer_tokens": 4096}))
    mine = str(tmp_path)
    assert answer_tokens(SolveOptions(task="t", model=mine)) == 4096
    assert answer_tokens(SolveOptions(task="t", model=mine, max_new_tokens=100)) == 100
    assert answer_tokens(SolveOptions(task="t", model=mine, server="http://localhost")) == 1024
    assert EvalOptions().answer_tokens("v3", 4096) == 4096
    assert EvalOptions().answer_tokens("v3") == 2048
    assert EvalOptions(max_new_tokens=100).answer_tokens("v3", 4096) == 100


def test_a_later_turns_prompt_has_room_for_the_longest_kernel_that_it_may_show(
    tmp_path: Path,
) -> None:
    assert EvalOptions().prompt_tokens(4096) == 2048
    assert EvalOptions(turns=3).prompt_tokens(4096) == 2048 + 4096
    assert EvalOptions(turns=3, max_prompt_tokens=100).prompt_tokens(4096) == 100
    write_card(weights(tmp_path), CARD.model_copy(update={"prompts": "v3", "answer_tokens": 4096}))
    assert prompt_tokens(SolveOptions(task="t", model=str(tmp_path))) == 2048 + 4096


@pytest.mark.parametrize(
    ("longest", "said"), [(0, None), (2048, None), (2049, 3072), (3072, 3072), (4000, 4096)]
)
def test_sft_tells_of_answers_longer_than_usual(longest: int, said: int | None) -> None:
    assert answers_learnt(longest, "v3") == said


def test_a_card_that_tells_no_length_is_known_by_its_old_digest() -> None:
    before = CARD.model_dump()
    before.pop("answer_tokens")
    text = json.dumps(before, separators=(",", ":"))
    assert CARD.digest == hashlib.sha256(text.encode()).hexdigest()
    assert CARD.model_copy(update={"answer_tokens": 4096}).digest != CARD.digest

"""Runs that are odd and not wrong: one task, equal outcomes, tasks in two suites or under new
names, answers that are there twice, another judge. No number claims more than it knows."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError
from coding_framework.evaluation.answers import GivenAnswer, matched
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.estimates import geometric_mean, pass_at, rate
from coding_framework.evaluation.eval_run import EvalIdentity, EvalRun
from coding_framework.evaluation.leak import leak_statement
from coding_framework.evaluation.outcome import summaries_of, summarize_run
from coding_framework.evaluation.samples import SampleRecord, once
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_speakers import speaker_of, weights_digest, weights_of
from coding_framework.store.model_card import ModelCard, TrainedOn, write_card

pytestmark = pytest.mark.unit

IDENTITY = EvalIdentity(
    model="m", model_digest="0", suites={}, samples=1, turns=1, sampling={}, prompts="v3", seed=0,
    judge={"backend": "emulator", "protocol": "11"},
)  # fmt: skip


def rows(correct: list[bool], task: str = "t") -> list[SampleRecord]:
    return [SampleRecord(task=task, sample=i, correct=c) for i, c in enumerate(correct)]


@pytest.mark.parametrize("correct", [[True], [False], [True, False], [True, True, False, False]])
def test_one_task_tells_next_to_nothing_of_others(correct: list[bool]) -> None:
    found = rate(rows(correct))
    low, high = found.ci95 or (0.0, 0.0)
    assert high - low > 0.75
    assert "indicative" in found.method


def test_tasks_of_equal_outcome_leave_room_for_others() -> None:
    half = [s for t in range(50) for s in rows([True, False], f"t{t}")]
    low, high = rate(half).ci95 or (0.5, 0.5)
    assert (low, high) == pytest.approx((0.366, 0.634), abs=0.001)  # Wilson of 25 of 50
    low, high = pass_at(half, 2).ci95 or (1.0, 1.0)
    assert low < 0.95
    assert high == 1


def test_a_single_speedup_has_no_interval() -> None:
    assert geometric_mean([3.0]).ci95 is None
    assert geometric_mean([3.0, 2.0]).ci95 is not None


def test_two_runs_of_one_task_have_no_word_and_no_narrow_interval() -> None:
    assert compare_runs(rows([False]), rows([True])).sentence == (
        "no clear difference in pass@1: +100.0 points (95%: -100.0 to +100.0, 1 tasks)"
    )


def test_pass_at_k_counts_the_samples_of_the_tasks_that_it_is_of() -> None:
    many = [s for t in range(39) for s in rows([True, False], f"t{t}")]
    found = pass_at([*many, *rows([True], "few")], 2)
    assert (found.tasks, found.left_out, found.samples) == (39, 1, 78)


def test_fewer_samples_than_k_are_told_and_never_taken_for_k() -> None:
    found = pass_at(rows([True] * 4), 5)
    assert (found.value, found.ci95) == (None, None)
    assert found.why == "1 of 1 tasks have fewer than 5 judged samples"


def test_a_task_of_two_suites_is_one_task_of_the_whole() -> None:
    suites = {"held-out:9": None, "held-out-shapes:9": "wrong_output"}
    records = [
        SampleRecord(task=f"t{t}", suite=name, correct=t % 2 == 0, holdout_status=other)
        for name, other in suites.items()
        for t in range(9)
    ]
    whole, *parts = summaries_of(list(suites), records, [1], [1.0])
    assert [s.overall.samples for s in (whole, *parts)] == [9, 9, 9]
    assert whole.overall.pass_at["pass@1"] == parts[0].overall.pass_at["pass@1"]
    assert whole.overall.regressions == parts[1].overall.regressions
    assert compare_runs(records, records).differences[0].tasks == 9
    assert len(once([*records, *records])) == 9


def test_a_renamed_task_is_the_same_and_an_equal_name_is_not_enough() -> None:
    a = [SampleRecord(task=f"t{i}", task_digest=f"d{i}", correct=False) for i in range(10)]
    renamed = [s.model_copy(update={"task": f"new{s.task}", "correct": True}) for s in a]
    found = compare_runs(a, renamed)
    assert (found.differences[0].word, found.left_out) == ("better", ())
    assert found.won[0] == "t0"
    changed = [s.model_copy(update={"task_digest": f"other {s.task}"}) for s in a[:4]]
    found = compare_runs(a, [*changed, *a[4:]])
    assert found.tasks == 6
    assert "another task named t0" in found.left_out
    with pytest.raises(UsageError, match="share 0 of 4 tasks"):
        compare_runs(a[:4], changed)
    twins = [s.model_copy(update={"task_digest": "d"}) for s in a]  # one task under ten names
    assert compare_runs(twins, twins).tasks == 10
    old = [s.model_copy(update={"task_digest": ""}) for s in a]  # of an older version
    assert compare_runs(old, a).tasks == compare_runs(a, old).tasks == 10


def test_samples_that_are_all_one_kernel_are_told() -> None:
    suite = EvalSuite(name="s", tasks=())
    same = [s.model_copy(update={"code_sha256": "x"}) for s in rows([True] * 4)]
    more = {"complete": True, "leak": {}, "unanswered": {}}
    told = summarize_run(IDENTITY, [suite], same, [1, 4], [1.0], **more).notes
    assert any("all samples of 1 of 1 tasks are one kernel" in note for note in told)
    other = [s.model_copy(update={"code_sha256": str(s.sample)}) for s in same]
    told = summarize_run(IDENTITY, [suite], other, [1, 4], [1.0], **more).notes
    assert not any("one kernel" in note for note in told)


@pytest.mark.parametrize(("cut", "told"), [(4, True), (0, False)])
def test_answers_that_were_cut_off_are_told(cut: int, told: bool) -> None:
    suite = EvalSuite(name="s", tasks=())
    found = rows([True] * 396 + [False] * 4)
    found = [s.model_copy(update={"cut": int(n >= 400 - cut)}) for n, s in enumerate(found)]
    more: dict[str, Any] = {"complete": True, "leak": {}, "unanswered": {}}
    asked = IDENTITY.model_copy(update={"sampling": {"max_new_tokens": 2048}})
    notes = summarize_run(asked, [suite], found, [1], [1.0], **more).notes
    said = "4 of 400 answers were cut off at 2048 tokens, which counts as wrong: --max-new-tokens"
    assert any(said in note for note in notes) == told
    nobody = IDENTITY.model_copy(update={"sampling": {}})  # answers that were given
    notes = summarize_run(nobody, [suite], found, [1], [1.0], **more).notes
    assert not any("cut off" in note for note in notes)


def test_an_answer_by_name_and_one_by_number_are_not_two_samples() -> None:
    relu = SuiteTask(task=find_task("relu"), level=1, number=19)
    suite = EvalSuite(name="kernelbench:1", tasks=(relu,))
    named = GivenAnswer(task="relu", code="a", note="")
    numbered = GivenAnswer(level=1, number=19, code="b", note="")
    assert len(matched(suite, [named, numbered.model_copy(update={"sample": 1})])) == 2
    with pytest.raises(UsageError, match="sample 0 of relu is there by its name and by its number"):
        matched(suite, [named, numbered])


@pytest.mark.parametrize(("name", "value"), [("protocol", "12"), ("backend", "cuda")])
def test_a_run_does_not_go_on_under_another_judge(tmp_path: Path, name: str, value: str) -> None:
    with EvalRun(tmp_path, IDENTITY):
        pass
    other = IDENTITY.model_copy(update={"judge": {**IDENTITY.judge, name: value}})
    with pytest.raises(UsageError, match=rf"judge\.{name}|{name} was"), EvalRun(tmp_path, other):
        pass


def test_the_card_of_a_servers_model_says_what_it_learnt(tmp_path: Path) -> None:
    options = EvalOptions(server="http://127.0.0.1:1", card=tmp_path)
    with pytest.raises(UsageError, match=r"there is no model_card\.json in it"):
        weights_of("name-at-the-server", options)
    card = ModelCard(stage="sft", base_model="b", trained_on=TrainedOn(digest="0", counts={}))
    write_card(tmp_path, card)
    assert weights_of("name-at-the-server", options) == tmp_path
    assert weights_of(None, EvalOptions(card=tmp_path)) == tmp_path
    assert json.loads((tmp_path / "model_card.json").read_text())["stage"] == "sft"
    relu = find_task("relu")
    suite = EvalSuite(name="s", tasks=(SuiteTask(task=relu),))
    assert leak_statement(suite, None).startswith("unknown: no model_card.json")
    assert "--card FOLDER" in leak_statement(suite, None)
    assert not leak_statement(suite, card).startswith("unknown")


def test_a_server_that_serves_a_folder_is_known_by_the_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    card = ModelCard(stage="sft", base_model="b", trained_on=TrainedOn(digest="0", counts={}))
    write_card(tmp_path, card)
    suite = EvalSuite(name="s", tasks=(SuiteTask(task=find_task("relu")),))

    def digest(model: str, server: str, adapter: str | None = None) -> str:
        options = EvalOptions(server=server, prompts="v1", adapter=adapter)
        with ExitStack() as stack:
            return speaker_of(model, (suite,), options, stack).digest

    one, other = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"
    folder = str(tmp_path)
    assert digest(folder, one) == digest(folder, other) == weights_digest(tmp_path)
    (tmp_path / "adapter").mkdir()
    before = digest(folder, one)
    assert digest(folder, one, str(tmp_path / "adapter")) != before
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert digest(folder, one) not in (before, f"unverifiable: {one}")
    assert digest("name-at-the-server", one) == f"unverifiable: {one}"
    assert weights_of(folder, EvalOptions(server=one)) == tmp_path
    assert weights_of("name-at-the-server", EvalOptions(server=one)) is None

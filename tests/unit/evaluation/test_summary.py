"""What a run means, in words that somebody understands who has not read about it."""

from __future__ import annotations

import pytest

from coding_framework.evaluation.eval_summary import summarize_samples
from coding_framework.evaluation.samples import sample_record
from coding_framework.evaluation.summary import (
    RLNumbers,
    Summary,
    device_in_words,
    headline,
    median_speedup,
    practice_line,
    practised,
    summarize,
)
from coding_framework.store.records import TaskEvidence
from coding_framework.types import Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


def made(steps: int, **solved: tuple[int, int]):
    """A summary of stages with so many tasks, the first of them solved."""
    stages = {}
    for label, (good, of) in solved.items():
        statuses = [Status.CORRECT] * good + [Status.WRONG_OUTPUT] * (of - good)
        states = [
            make_state(
                make_turn(0, make_verdict(s, 1.0 if s is Status.CORRECT else None), "int a;")
            )
            for s in statuses
        ]
        stages[label] = summarize_samples([sample_record(s) for s in states], [1], [1.0])
    return summarize(stages, RLNumbers(steps=steps, steps_with_gradient=steps), {}, {}, {})


def test_a_summary_of_before_0_2_is_read() -> None:
    counts = {"count": 1, "n": 4, "rate": 0.25, "ci95": [0.05, 0.7]}
    stage = {
        "label": "sft", "n": 4, "compile_rate": 0.25, "pass_rate": 0.25,
        "first_turn_pass_rate": 0.0, "median_speedup": 1.5, "speedup_basis": "modelled",
        "compile": counts, "passed": counts, "first_turn_passed": counts | {"count": 0, "rate": 0},
        "masked_conversations": 2, "masked_turns": 2, "turns": 9, "statuses": {"correct": 1},
        "fixed_by_feedback": 1, "improved_by_feedback": 0, "repeated_turns": 3,
        "end_reasons": {"max_turns": 4},
    }  # fmt: skip
    now = made(5, base=(0, 4)).model_dump(mode="json")
    found = Summary.model_validate({**now, "stages": {**now["stages"], "sft": stage}})
    block = found.stages["sft"]
    assert (block.samples, block.correct.count, block.fixed_by_feedback, block.masked) == (
        4,
        1,
        1,
        2,
    )
    assert median_speedup(block) == "1.50x (modelled)"
    assert Summary.model_validate(found.model_dump(mode="json")) == found


def test_a_tiny_run_says_that_the_machinery_works_and_no_more():
    said = headline(made(1, base=(0, 4), sft=(0, 4), rl=(1, 4)))
    assert said == ("The machinery works; nothing can be said about learning: 4 tasks, 1 RL step.")


def test_what_was_learnt_is_said_with_its_numbers():
    said = headline(made(5, base=(0, 40), sft=(19, 40), rl=(21, 40)))
    assert "has learnt" in said
    assert "21 of 40" in said
    assert "0 of 40 before" in said
    assert said.endswith("5 RL steps: 2 more than after SFT, within noise.")
    lost = headline(made(4, base=(0, 24), sft=(7, 24), rl=(5, 24)))
    assert lost.endswith("4 RL steps: 2 fewer than after SFT, within noise.")
    far = headline(made(4, base=(0, 40), sft=(10, 40), rl=(38, 40)))
    assert far.endswith("4 RL steps: 28 more than after SFT.")


def test_no_gain_is_said():
    assert headline(made(5, base=(5, 40), sft=(6, 40), rl=(6, 40))).startswith("No clear gain")


def test_what_was_practised_is_told_with_chance_in_mind():
    before = [TaskEvidence(task=name, samples=4, solved=k) for k, name in enumerate("abcde")]
    masked = TaskEvidence(task="m", samples=0, solved=0)
    after = {name: [True] * 4 for name in "abcdz"} | {"e": [True, False, True, True], "m": []}
    found = practised([*before, masked], after)
    assert (found.tasks, found.before.count, found.after.count, found.after.n) == (5, 10, 19, 20)
    assert (found.better, found.worse, found.clear) == (4, 1, True)
    said = practice_line(found)
    assert "Of 20 answers to 5 training tasks 10 were right" in said
    assert said.endswith("gives 19 right ones of 20 (tasks: 4 better, 1 worse).")
    few = practised(before, after | {name: [True, True, False, False] for name in "bcd"})
    assert (few.after.count, few.better, few.worse, few.clear) == (13, 2, 2, False)
    assert practice_line(few).endswith("(tasks: 2 better, 2 worse, within noise).")
    many = [TaskEvidence(task=str(i), samples=4, solved=2) for i in range(5)]
    same = practised(many, {str(i): [True, False, True, False] for i in range(5)})
    assert not same.clear
    none = practised(before[:1], {"a": [False] * 4})
    assert practice_line(none).startswith("None of 4 answers to 1 training tasks was right")
    assert not none.clear
    of_before = found.model_dump(exclude={"p"})  # a run of an earlier version that goes on
    assert not type(found).model_validate(of_before).clear
    told = summarize({}, RLNumbers(steps=0, steps_with_gradient=0), {}, {}, {}, found)
    assert told.learning.rft_learnt_its_tasks


def test_a_machine_without_a_gpu_is_not_called_one():
    modelled = device_in_words({"backend": "emulator", "device": "NVIDIA H200"})
    assert modelled.startswith("no GPU")
    assert "modelled for an NVIDIA H200" in modelled
    assert device_in_words({"backend": "cuda", "device": "NVIDIA H200"}) == "NVIDIA H200"
    assert "no kernel reached" in device_in_words({"backend": "none", "device": "not reached"})

"""A budget of minutes becomes counts, and a forecast follows what was measured."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from coding_framework.data.examples import training_examples
from coding_framework.run.recipe import Recipe, WholeRun
from coding_framework.run.rejection import _sampling
from coding_framework.run.sizing import (
    LADDER,
    SHARE,
    Rates,
    Sizes,
    fitting,
    forecast,
    left_s,
    sized,
)
from coding_framework.run.stages import (
    _load_line,
    _plan_lines,
    solved_now_and_then,
    tasks_to_learn,
)
from coding_framework.training.sft_examples import load_examples

pytestmark = pytest.mark.unit

FAST = Rates(
    start_s=5,
    train_tokens_s=800,
    prefill_tokens_s=4000,
    step_s=0.03,
    answer_step_s=0.002,
    verdict_s=0.5,
)
SLOW = FAST.model_copy(
    update={"start_s": 60, "train_tokens_s": 20, "step_s": 2.0, "verdict_s": 9.0, "others": 0.6}
)


def seconds(sizes, rates):
    return sum(forecast(sizes, rates).values())


def test_each_rung_of_the_ladder_takes_longer_than_the_one_below():
    for rates in (FAST, SLOW):
        taken = [seconds(sizes, rates) for sizes in LADDER]
        assert taken == sorted(taken)
    assert LADDER[0].rl_steps >= 4


@pytest.mark.parametrize("minutes", [15, 20, 60])
def test_the_largest_run_that_fits_is_taken(minutes):
    chosen = fitting(60 * minutes, FAST)
    assert seconds(chosen, FAST) <= SHARE * 60 * minutes
    above = LADDER[LADDER.index(chosen) + 1 :]
    assert not above or seconds(above[0], FAST) > SHARE * 60 * minutes


def test_more_minutes_and_a_faster_machine_never_give_less():
    rungs = [LADDER.index(fitting(60 * m, FAST)) for m in (1, 5, 10, 20, 40, 80)]
    assert rungs == sorted(rungs)
    assert LADDER.index(fitting(1200, SLOW)) <= LADDER.index(fitting(1200, FAST))


def test_a_budget_that_holds_nothing_is_told_with_the_time_it_takes():
    said = " ".join(_plan_lines(20, SLOW, fitting(1200, SLOW)))
    assert "20 minutes cannot hold the smallest run that shows learning" in said
    assert "it will take about" in said
    assert "other processes take 60% of the CPU" in said
    assert "cannot hold" not in " ".join(_plan_lines(20, FAST, fitting(1200, FAST)))
    assert _load_line(0.05) == []


def test_the_time_left_follows_what_the_finished_stages_took():
    planned = {"eval_base": 10.0, "sft": 100.0, "rl": 50.0}
    assert left_s(planned, {}) == 160.0
    assert left_s(planned, {"model": 3.0, "eval_base": 10.0, "sft": 100.0}) == 50.0
    assert left_s(planned, {"eval_base": 20.0, "sft": 200.0}) == 100.0
    assert left_s({}, {"sft": 1.0}) == 0.0


IDLE = Rates(
    start_s=4.015, train_tokens_s=264.7, prefill_tokens_s=1837.0, step_s=0.02535,
    answer_step_s=0.001997, verdict_s=0.8575, dtype="bfloat16",
)  # fmt: skip
IDLE_SIZES = Sizes(
    held_out_tasks=24, sft_examples=140, optimizer_examples=20, rl_steps=4, prompts_per_step=2,
    samples_per_prompt=4, rl_turns=1, probe_tasks=10,
)  # fmt: skip
"""Of a whole run on 2 idle cores with AVX-512 (commit 586ea0e), with what its stages took."""
IDLE_TOOK = {"eval_base": 33.6, "sft": 276.8, "eval_sft": 142.6, "rl": 211.3, "eval_rl": 83.0}
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def unpractised(sizes: Sizes, rates: Rates) -> dict[str, float]:
    """The forecast of a run of before: it tried RL's tasks in the evaluation after SFT, and did not
    practise."""
    planned = forecast(sizes, rates)
    del planned["rft"]
    planned["eval_sft"] += planned.pop("practice")
    return planned


def test_the_forecast_of_each_stage_of_an_idle_run_is_near_what_it_took():
    planned = unpractised(IDLE_SIZES, IDLE)
    assert planned.keys() == IDLE_TOOK.keys()
    for stage, seconds_taken in IDLE_TOOK.items():
        assert planned[stage] == pytest.approx(seconds_taken, rel=0.25), stage


@pytest.mark.parametrize(
    ("name", "planned_by"), [("quickstart", forecast), ("quickstart.avx2", unpractised)]
)
def test_the_forecast_of_a_run_is_near_what_it_took(name, planned_by):
    found = json.loads((RESULTS / f"{name}.json").read_text())
    start, costs = found["measured_at_start"], found["summary"]["costs"]
    planned = planned_by(Sizes.model_validate(start["sizes"]), Rates.model_validate(start["rates"]))
    assert planned.keys() == costs.keys() - {"model"}
    assert sum(planned.values()) == pytest.approx(sum(costs[s]["wall_s"] for s in planned), rel=0.3)


def test_sizes_leave_the_other_settings_of_the_recipe():
    recipe = {"sft": {"epochs": 2.0}, "rl": {"temperature": 1.1}}
    changed = sized(LADDER[0], FAST, recipe)
    assert changed["sft"]["epochs"] == 2.0
    assert changed["sft"]["num_examples"] == LADDER[0].sft_examples
    assert changed["rl"]["temperature"] == 1.1
    assert changed["rl"]["max_turns"] == LADDER[0].rl_turns


def test_the_least_run_has_one_turn_and_so_nothing_that_only_a_second_turn_needs():
    least = LADDER[0]
    assert least.eval_turns == least.rl_turns == 1
    assert least.optimizer_examples == 0
    assert sized(least, FAST, {"sft": {}, "rl": {}})["max_turns"] == 1
    assert "one turn" in least.told()
    assert "2 turns" in LADDER[-1].told()


def run_of(recipe: Recipe) -> WholeRun:
    return WholeRun(title="", recipe=recipe, folder=Path(), base_model="m")


def test_the_smallest_runs_have_easy_tasks_and_say_so():
    least, recipe = LADDER[0], Recipe(device="cpu", sft={}, rl={})
    changed = sized(least, FAST, recipe.model_dump())
    job = run_of(Recipe.model_validate({**recipe.model_dump(), **changed}))
    assert "elementwise tasks of at most 2 operations" in least.told()
    assert {f"tier {t.tier}" for t in job.held_out()} == {"tier 0"}
    assert max(len(t.ops) for t in (*job.held_out(), *job.probe_tasks())) <= 2
    assert job.sft_config("m").max_task_tier == 0
    assert job.rl_config("m").max_response_tokens == least.answer_tokens


@pytest.mark.parametrize("sizes", [s for s in LADDER if s.fresh_rl_tasks], ids=str)
def test_rl_of_easy_runs_has_tasks_that_sft_has_not_shown(sizes):
    recipe = Recipe(device="cpu", sft={}, rl={})
    changed = sized(sizes, FAST, recipe.model_dump())
    job = run_of(Recipe.model_validate({**recipe.model_dump(), **changed}))
    config = job.sft_config("m")
    make = partial(training_examples, max_tier=config.max_task_tier)
    shown = load_examples(config, make)
    assert len(shown) == sizes.sft_examples
    probed = job.probe_tasks()
    assert len(probed) == sizes.probe_tasks
    assert len(job.held_out()) == sizes.held_out_tasks
    assert not {t.name for t in probed} & {e.task.name for e in shown}
    practising = job.model_copy(update={"practise": True})
    practised = practising.probe_tasks()
    assert len(practised) == sizes.probe_tasks
    options = practising.rejection_options()
    assert (options.dtype, _sampling(options).dtype) == (FAST.dtype, FAST.dtype)
    assert not {t.name for t in practised} & {e.task.name for e in shown}


def test_rl_takes_the_tasks_that_are_solved_now_and_then():
    probe = {"never": 0.0, "rarely": 0.25, "often": 0.75, "always": 1.0}
    assert sorted(tasks_to_learn(probe, 2)) == ["often", "rarely"]
    assert len(tasks_to_learn(probe, 3)) == 3
    assert [solved_now_and_then(s) for s in (0.0, 0.1, 0.8, 1.0)] == [False, True, True, False]

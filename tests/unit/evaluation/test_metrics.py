"""Rates, intervals and what is left out of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from coding_framework.evaluation.metrics import clearly_above, proportion, stage_metrics, wilson
from coding_framework.types import Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_scipys_wilson_interval(counts):
    count, n = counts
    expected = binomtest(count, n).proportion_ci(method="wilson")
    low, high = wilson(count, n)
    assert low == pytest.approx(max(0.0, expected.low), abs=1e-9)
    assert high == pytest.approx(min(1.0, expected.high), abs=1e-9)


def test_no_trial_tells_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
    assert proportion([]).rate == 0.0


def test_a_count_above_n_is_an_error():
    with pytest.raises(ValueError, match="count 3 of n 2"):
        wilson(3, 2)


def test_a_conversation_passes_by_any_of_its_turns():
    fixed = make_state(
        make_turn(0, make_verdict(Status.WRONG_OUTPUT), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 2.0), "b"),
    )
    lost = make_state(make_turn(0, make_verdict(Status.COMPILE_ERROR), "a"))
    metrics = stage_metrics("sft", [fixed, lost])
    assert (metrics.n, metrics.pass_rate, metrics.compile_rate) == (2, 0.5, 0.5)
    assert metrics.first_turn_pass_rate == 0.0
    assert metrics.fixed_by_feedback == 1
    assert metrics.statuses == {"wrong_output": 1, "correct": 1, "compile_error": 1}


def test_the_median_speedup_is_over_the_best_correct_turn_of_each_conversation():
    states = [
        make_state(
            make_turn(0, make_verdict(Status.CORRECT, 1.0), "a"),
            make_turn(1, make_verdict(Status.CORRECT, s), "b"),
        )
        for s in (2.0, 3.0, 0.5)
    ]
    metrics = stage_metrics("rl", states)
    assert metrics.median_speedup == 2.0
    assert metrics.speedup_basis == "modelled"


def test_what_feedback_was_worth_is_counted():
    faster = make_state(
        make_turn(0, make_verdict(Status.CORRECT, 1.0), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 2.0), "b"),
    )
    repeated = make_state(
        make_turn(0, make_verdict(Status.CORRECT, 1.0), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 1.0), "a"),
    )
    metrics = stage_metrics("rl", [faster, repeated])
    assert metrics.improved_by_feedback == 1
    assert metrics.repeated_turns == 1
    assert metrics.end_reasons == {"max_turns": 2}


def test_a_conversation_that_was_never_judged_is_left_out_and_counted():
    ours = make_state(make_turn(0, None, "a", "DeviceError: died"))
    gap = make_state(make_turn(0, make_verdict(Status.UNSUPPORTED), "a", "unsupported: wgmma"))
    good = make_state(make_turn(0, make_verdict(Status.CORRECT, 1.0)))
    metrics = stage_metrics("base", [ours, gap, good])
    assert (metrics.n, metrics.pass_rate) == (1, 1.0)
    assert (metrics.masked_conversations, metrics.masked_turns) == (2, 2)


def test_nothing_correct_has_no_speedup_and_is_valid_json():
    metrics = stage_metrics("base", [make_state(make_turn(0, make_verdict(Status.COMPILE_ERROR)))])
    assert metrics.median_speedup is None
    assert json.loads(metrics.model_dump_json())["median_speedup"] is None


def test_clearly_above_asks_for_disjoint_intervals():
    none, some, all_ = (proportion([i < k for i in range(40)]) for k in (0, 2, 40))
    assert clearly_above(all_, none)
    assert not clearly_above(some, none)

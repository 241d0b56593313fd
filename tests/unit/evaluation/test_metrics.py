"""Rates, intervals and what is left out of them."""

from __future__ import annotations

import json
import random
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, fisher_exact

from coding_framework.evaluation.estimates import clearly_above, share
from coding_framework.evaluation.eval_summary import Block, summarize_samples
from coding_framework.evaluation.metrics import chance_of, wilson
from coding_framework.evaluation.samples import sample_record
from coding_framework.types import CUDAConversationState, Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit


def summed(*states: CUDAConversationState) -> Block:
    """The numbers of conversations, each about a task of its own."""
    records = [
        sample_record(state).model_copy(update={"task": f"t{i}"}) for i, state in enumerate(states)
    ]
    return summarize_samples(records, [1], [1.0])


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_scipys_wilson_interval(counts):
    count, n = counts
    expected = binomtest(count, n).proportion_ci(method="wilson")
    low, high = wilson(count, n)
    assert low == pytest.approx(max(0.0, expected.low), abs=1e-9)
    assert high == pytest.approx(min(1.0, expected.high), abs=1e-9)


def test_no_trial_tells_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
    assert share([]).rate is None


def test_a_count_above_n_is_an_error():
    with pytest.raises(ValueError, match="count 3 of n 2"):
        wilson(3, 2)


def test_a_conversation_passes_by_any_of_its_turns():
    fixed = make_state(
        make_turn(0, make_verdict(Status.WRONG_OUTPUT), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 2.0), "b"),
    )
    lost = make_state(make_turn(0, make_verdict(Status.COMPILE_ERROR), "a"))
    found = summed(fixed, lost)
    assert (found.samples, found.correct.rate, found.compiled.rate) == (2, 0.5, 0.5)
    assert found.first_correct.rate == 0.0
    assert found.fixed_by_feedback == 1
    assert found.statuses == {"correct": 1, "compile_error": 1}


def test_the_median_speedup_is_over_the_best_correct_turn_of_each_conversation():
    states = [
        make_state(
            make_turn(0, make_verdict(Status.CORRECT, 1.0), "a"),
            make_turn(1, make_verdict(Status.CORRECT, s), "b"),
        )
        for s in (2.0, 3.0, 0.5)
    ]
    (speeds,) = summed(*states).speeds
    assert (speeds.median, speeds.basis) == (2.0, "modelled")


def test_what_feedback_was_worth_is_counted():
    faster = make_state(
        make_turn(0, make_verdict(Status.CORRECT, 1.0), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 2.0), "b"),
    )
    repeated = make_state(
        make_turn(0, make_verdict(Status.CORRECT, 1.0), "a"),
        make_turn(1, make_verdict(Status.CORRECT, 1.0), "a"),
    )
    found = summed(faster, repeated)
    assert found.improved_by_feedback == 1
    assert found.repeated_turns == 1
    assert found.end_reasons == {"max_turns": 2}


def test_a_conversation_that_was_never_judged_is_left_out_and_counted():
    ours = make_state(make_turn(0, None, "a", "DeviceError: died"))
    gap = make_state(make_turn(0, make_verdict(Status.UNSUPPORTED), "a", "unsupported: wgmma"))
    good = make_state(make_turn(0, make_verdict(Status.CORRECT, 1.0)))
    found = summed(ours, gap, good)
    assert (found.samples, found.correct.rate) == (1, 1.0)
    assert (found.masked, found.unsupported) == (1, 1)


def test_nothing_correct_has_no_speedup_and_is_valid_json():
    found = summed(make_state(make_turn(0, make_verdict(Status.COMPILE_ERROR))))
    assert found.speeds == ()
    assert Block.model_validate(json.loads(found.model_dump_json())) == found


def test_clearly_above_asks_for_disjoint_intervals():
    none, some, all_ = (share([i < k for i in range(40)]) for k in (0, 2, 40))
    assert clearly_above(all_, none)
    assert not clearly_above(some, none)


def flags(right: int, of: int) -> list[bool]:
    return [i < right for i in range(of)]


@pytest.mark.parametrize(
    ("before", "after"), [((1, 3), (3, 3)), ((2, 5), (4, 4)), ((3, 3), (1, 2))]
)
def test_of_one_task_the_chance_is_fishers(before, after):
    table = [[after[0], after[1] - after[0]], [before[0], before[1] - before[0]]]
    found = chance_of([(flags(*before), flags(*after))])
    assert found == pytest.approx(fisher_exact(table, alternative="greater").pvalue)


def test_of_several_tasks_the_chance_is_counted_over_all_orders_of_each_ones_answers():
    tasks = [((1, 3), (3, 3)), ((0, 2), (1, 2)), ((2, 2), (1, 3))]
    pairs = [(flags(*before), flags(*after)) for before, after in tasks]
    seen = sum(sum(after) for _, after in pairs)
    later = [
        [sum(chosen) for chosen in combinations([*before, *after], len(after))]
        for before, after in pairs
    ]
    as_many = [sum(each) >= seen for each in product(*later)]
    assert chance_of(pairs) == pytest.approx(sum(as_many) / len(as_many))


def test_a_policy_that_did_not_change_is_seldom_called_better():
    """Each task has a probability of its own, as after SFT: most are always or never solved."""
    draw = random.Random(0)
    alarms = 0
    for _ in range(1000):
        tasks = [draw.choice((0.0, 1.0, draw.random())) for _ in range(16)]
        pairs = [[[draw.random() < p for _ in range(3)] for _ in "ab"] for p in tasks]
        alarms += chance_of([(before, after) for before, after in pairs]) <= 0.05
    assert alarms <= 50


def test_tasks_lost_weigh_against_tasks_won():
    won, lost = (flags(0, 3), flags(3, 3)), (flags(3, 3), flags(0, 3))
    assert chance_of([won, won]) < 0.01
    assert chance_of([won, won, lost, lost]) > 0.5
    assert chance_of([]) == 1.0
    assert chance_of([([], []), (flags(1, 2), [])]) == 1.0


def test_a_chance_at_the_bound_and_of_many_answers_is_exact():
    """0.2 x 0.5 x 0.5 is 0.05 and no more, and large counts neither overflow nor vanish."""
    three = [(flags(1, 3), flags(3, 3)), (flags(2, 3), flags(3, 3)), (flags(2, 3), flags(3, 3))]
    assert chance_of(three) == 0.05
    many = [(flags(0, 60), flags(60, 60))] * 20
    assert 0.0 < chance_of(many[:8]) < 1e-200
    assert chance_of([(flags(60, 60), flags(0, 60))] * 20) == 1.0

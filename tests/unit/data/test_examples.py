"""Examples and held-out tasks drawn from the catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from coding_framework.data.examples import (
    UNVERIFIED,
    held_out_examples,
    held_out_tasks,
    training_examples,
    training_tasks,
)
from coding_framework.data.kernels import kernels_of
from coding_framework.data.synthesis.canonical import canonical_key
from coding_framework.data.synthesis.catalog import parse_function
from coding_framework.errors import UsageError
from coding_framework.types import Role, Split, TrainingExample

pytestmark = pytest.mark.unit


def test_training_examples_are_deterministic_balanced_and_from_training_tasks_only() -> None:
    examples = training_examples(Role.GENERATOR, 160, seed=3)
    assert [e.id for e in examples] == [e.id for e in training_examples(Role.GENERATOR, 160, 3)]
    assert len({e.id for e in examples}) == 160
    assert {e.task.split for e in examples} == {Split.TRAIN}
    counts = Counter(e.task.family for e in examples)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_another_seed_draws_other_examples() -> None:
    one, other = (training_examples(Role.GENERATOR, 50, seed=s) for s in (0, 1))
    assert {e.id for e in one} != {e.id for e in other}


def test_a_smaller_draw_is_a_prefix_of_a_larger_one() -> None:
    larger = [e.id for e in training_examples(Role.OPTIMIZER, 100)]
    assert [e.id for e in training_examples(Role.OPTIMIZER, 30)] == larger[:30]


@pytest.mark.parametrize("draw", [training_examples, held_out_examples])
def test_the_generator_is_shown_the_naive_kernel_unless_the_best_is_asked_for(
    draw: Callable[..., list[TrainingExample]],
) -> None:
    naive, best = (draw(Role.GENERATOR, 110, **asked) for asked in ({}, {"target": "best"}))
    assert draw(Role.GENERATOR, 110, target="naive") == naive
    assert all(e.code == e.task.naive_kernel for e in naive)
    assert [e.task.name for e in best] == [e.task.name for e in naive]
    faster = [e for e in best if e.code != e.task.naive_kernel]
    assert len(faster) > 90  # every family of the set has a faster kernel, where it is judged
    assert all(e.receipt and not e.why for e in best)  # the prompt asks for no reason
    assert len({e.id for e in [*naive, *faster]}) == len(naive) + len(faster)


def test_what_the_optimizer_learns_does_not_depend_on_the_generators_target() -> None:
    plain, asked = (training_examples(Role.OPTIMIZER, 60, target=t) for t in ("naive", "best"))
    assert plain == asked


def test_optimizer_examples_improve_or_repair_and_say_why() -> None:
    examples = training_examples(Role.OPTIMIZER, 90)
    kinds = Counter(e.kind for e in examples)
    assert kinds["optimize"] > kinds["repair"] > 15
    for example in examples:
        verdict = example.previous_verdict
        assert verdict is not None
        assert verdict.correct == (example.kind == "optimize")
        assert (example.previous_code == example.task.naive_kernel) == verdict.correct
        assert example.code != example.previous_code
        assert example.why
        assert example.receipt


def test_kernels_as_they_are_written_now_need_no_receipt() -> None:
    examples = training_examples(Role.GENERATOR, 3, receipts=UNVERIFIED, target="best")
    for example in examples:
        written = kernels_of(example.task)
        assert example.code in {kernel.code for kernel in written}
        assert example.receipt == ""


def test_held_out_tasks_are_balanced_over_families() -> None:
    tasks = held_out_tasks(64)
    assert {t.split for t in tasks} == {Split.HELD_OUT}
    assert len({t.name for t in tasks}) == 64
    counts = Counter(t.family for t in tasks)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_held_out_example_is_of_a_function_that_is_trained_on() -> None:
    for role in (Role.GENERATOR, Role.OPTIMIZER):
        unseen = held_out_examples(role, 1000)
        assert len(unseen) >= 40
        assert {e.task.split for e in unseen} == {Split.HELD_OUT}
        assert all(e.receipt for e in unseen)
        trained = training_examples(role, 100_000)
        assert not _keys(unseen) & _keys(trained)
        assert not {e.code for e in unseen} & {e.code for e in trained}
    first = [e.id for e in held_out_examples(Role.GENERATOR, 16)]
    assert first == [e.id for e in held_out_examples(Role.GENERATOR, 32)][:16]


def _keys(examples: list[TrainingExample]) -> set[tuple[str, ...]]:
    functions = (parse_function(e.task.name) for e in examples)
    return {canonical_key(f) for f in functions if f is not None}


def test_max_steps_bounds_the_composition() -> None:
    assert all(len(t.ops) <= 2 for t in training_tasks(50, max_steps=2))


def test_asking_for_more_tasks_than_there_are_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="have a judged kernel"):
        held_out_tasks(100_000)


def test_the_tester_has_no_examples() -> None:
    with pytest.raises(UsageError, match="generator or optimizer"):
        training_examples(Role.TESTER, 1)

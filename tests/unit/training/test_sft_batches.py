"""Batches of examples of about equal length."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from coding_framework.training.sft_batches import (
    EpochOrder,
    order_by_length,
    share,
)

pytestmark = pytest.mark.unit
LENGTHS = random.Random(0).choices(range(200, 3000), k=1003)


def test_every_example_comes_once_an_epoch_and_a_short_batch_comes_last() -> None:
    order = order_by_length(LENGTHS, 8, seed=1)
    assert sorted(order) == list(range(1003))
    first = [LENGTHS[i] for i in order[:8]]
    assert max(first) == max(LENGTHS[i] for i in order[:1000])
    assert order_by_length([], 8, seed=1) == []


def test_an_epoch_has_its_own_order_which_repeats() -> None:
    sampler = EpochOrder(LENGTHS, 8, seed=1)
    one = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != one
    assert list(sampler) == order_by_length(LENGTHS, 8, seed=1, epoch=1)
    assert len(sampler) == 1003


def padded(order: Sequence[int]) -> float:
    """Share of the tokens of padded batches of 8 that are padding."""
    batches = [[LENGTHS[i] for i in order[k : k + 8]] for k in range(0, len(order), 8)]
    return 1.0 - sum(LENGTHS) / sum(len(batch) * max(batch) for batch in batches)


def test_little_is_padded() -> None:
    assert padded(order_by_length(LENGTHS, 8, seed=1)) < 0.03
    assert padded(range(1003)) > 0.3


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("by_length", [True, False])
def test_ranks_share_an_epoch(ranks: int, by_length: bool) -> None:
    orders = [
        EpochOrder(LENGTHS, 8, seed=1, by_length=by_length, rank=r, ranks=ranks)
        for r in range(ranks)
    ]
    shares = [list(order) for order in orders]
    assert {i for each in shares for i in each} == set(range(1003))
    batches = [-(-len(each) // 8) for each in shares]
    assert len(set(batches)) == 1, "a rank without a batch would keep the others waiting"
    assert sum(map(len, shares)) - 1003 < 8 * ranks
    assert [len(order) for order in orders] == list(map(len, shares))


def test_a_rank_has_no_short_batch_but_its_last() -> None:
    shares = [share(range(19), 4, rank, 3) for rank in range(3)]
    assert shares == [
        [*range(4), *range(12, 16)],
        [*range(4, 8), *range(16, 19)],
        [*range(8, 12), *range(4)],
    ]


def test_two_ranks_learn_in_a_step_what_one_learns_of_twice_the_batch() -> None:
    lengths = LENGTHS[:1000]
    alone = list(EpochOrder(lengths, 8, seed=1))
    pair = [list(EpochOrder(lengths, 4, seed=1, rank=r, ranks=2)) for r in range(2)]
    for step in range(125):
        halves = [each[4 * step : 4 * step + 4] for each in pair]
        assert halves[0] + halves[1] == alone[8 * step : 8 * step + 8]


@pytest.mark.parametrize("examples", [0, 1, 3, 9])
def test_fewer_examples_than_a_step_has_keep_no_rank_waiting(examples: int) -> None:
    shares = [list(EpochOrder(LENGTHS[:examples], 4, seed=1, rank=r, ranks=8)) for r in range(8)]
    assert {i for each in shares for i in each} == set(range(examples))
    assert len({-(-len(each) // 4) for each in shares}) == 1

"""Batches of examples of about equal length."""

from __future__ import annotations

import random

import pytest

from coding_framework.training.sft_batches import ByLength, order_by_length, padded_share

pytestmark = pytest.mark.unit
LENGTHS = random.Random(0).choices(range(200, 3000), k=1003)


def test_every_example_comes_once_an_epoch_and_a_short_batch_comes_last() -> None:
    order = order_by_length(LENGTHS, 8, seed=1)
    assert sorted(order) == list(range(1003))
    first = [LENGTHS[i] for i in order[:8]]
    assert max(first) == max(LENGTHS[i] for i in order[:1000])
    assert order_by_length([], 8, seed=1) == []


def test_an_epoch_has_its_own_order_which_repeats() -> None:
    sampler = ByLength(LENGTHS, 8, seed=1)
    one = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != one
    assert list(sampler) == order_by_length(LENGTHS, 8, seed=1, epoch=1)
    assert len(sampler) == 1003


def test_little_is_padded() -> None:
    by_length = padded_share(LENGTHS, order_by_length(LENGTHS, 8, seed=1), 8)
    assert by_length < 0.03
    assert padded_share(LENGTHS, range(1003), 8) > 0.3
    assert padded_share([], [], 8) == 0.0

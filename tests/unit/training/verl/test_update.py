"""Which rows the policy update gets."""

from __future__ import annotations

import pytest

from coding_framework.training.verl.update import chosen_rows

pytestmark = pytest.mark.unit


def test_rows_of_groups_with_equal_returns_are_left_out():
    assert chosen_rows([True, False, True, False], [9, 1, 8, 2], ranks=1) == [0, 2]


def test_every_rank_gets_as_many_rows_filled_with_the_shortest_of_the_others():
    assert chosen_rows([True, False, True, True, False], [9, 7, 8, 5, 2], ranks=2) == [0, 2, 3, 4]
    assert chosen_rows([True, True], [9, 7], ranks=2) == [0, 1]

"""Which timed calls are checked, and which inputs a call takes; no driver is called."""

from __future__ import annotations

from typing import Any

import pytest

from coding_framework.cuda.gpu.replay import Region, TimedPlan, _Call, _Schedule

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("draws", [1, 2, 3, 5])
def test_each_draw_is_checked_once_and_one_of_them_at_the_end(draws: int) -> None:
    for _ in range(20):
        schedule = _Schedule(draws, 30)
        taken = [draw for draw in (schedule.next() for _ in range(60)) if draw is not None]
        assert len(taken) == draws - 1
        assert schedule.left() == [draws - 1]
        assert sorted([*taken, *schedule.left()]) == list(range(draws))


def test_the_checked_calls_lie_at_places_that_vary() -> None:
    places = set()
    for _ in range(50):
        schedule = _Schedule(2, 30)
        places.add(next(i for i in range(30) if schedule.next() is not None))
    assert len(places) > 10


def call_on(region: Region, draws: int, *, fresh: bool = True) -> Any:
    """Just enough of a call to ask it for offsets."""
    import random

    call = object.__new__(_Call)
    call._plan = TimedPlan((), (region,), (), (), draws, fresh)
    call._random = random.Random(0)
    return call


@pytest.mark.parametrize(
    ("nbytes", "itemsize"), [(4, 4), (600, 2), (1 << 20, 4), ((1 << 20) + 2, 2)]
)
def test_a_slice_lies_in_the_pool_and_begins_at_an_element(nbytes: int, itemsize: int) -> None:
    region = Region(0, nbytes, itemsize)
    call = call_on(region, 3)
    offsets = [call._offset(region, None) for _ in range(200)]
    assert all(0 <= offset <= 2 * nbytes and offset % itemsize == 0 for offset in offsets)
    assert len(set(offsets)) > 2
    assert [call._offset(region, draw) for draw in range(3)] == [0, nbytes, 2 * nbytes]


def test_a_plan_that_is_right_for_one_draw_takes_no_other() -> None:
    region = Region(0, 4096, 4)
    call = call_on(region, 1, fresh=False)
    assert {call._offset(region, None) for _ in range(20)} == {0}


@pytest.mark.parametrize("draws", [1, 2])
def test_of_few_calls_the_last_is_checked_and_one_of_the_others_where_there_are_two(
    draws: int,
) -> None:
    for _ in range(100):
        schedule = _Schedule(draws, 5)
        checked = [draw for draw in (schedule.next() for _ in range(5)) if draw is not None]
        assert checked == list(range(draws - 1))
        assert schedule.left() == [draws - 1]

"""When a replica is out, and when it is in."""

from __future__ import annotations

import pytest

from coding_framework.deployment.backends import Replica

pytestmark = pytest.mark.unit


def up() -> Replica:
    replica = Replica("http://a")
    replica.checked(True)
    return replica


def test_the_first_check_decides_alone() -> None:
    assert up().healthy(0.0)
    down = Replica("http://a")
    down.checked(False)
    assert not down.healthy(0.0)


def test_three_failed_checks_take_it_out_and_two_good_ones_in() -> None:
    replica = up()
    seen = []
    for good in (False, False, False, True, True):
        replica.checked(good)
        seen.append(replica.healthy(0.0))
    assert seen == [True, True, False, False, True]


def test_five_failed_connections_in_a_row_eject_it_for_longer_each_time() -> None:
    replica = up()
    pauses = []
    now = 0.0
    for _ in range(6):
        for _ in range(5):
            replica.answered(None, now)
        pauses.append(replica.ejected_until - now)
        now = replica.ejected_until
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_an_answer_between_failed_connections_keeps_it() -> None:
    replica = up()
    for status in (None, None, None, None, 200, None, None):
        replica.answered(status, 0.0)
    assert replica.healthy(0.0)


def test_over_half_of_twenty_answers_5xx_eject_it() -> None:
    replica = up()
    for number in range(19):
        replica.answered(500 if number < 11 else 200, 0.0)
    assert replica.healthy(0.0)
    replica.answered(200, 0.0)
    assert not replica.healthy(0.0)
    assert replica.healthy(5.0)

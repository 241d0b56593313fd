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
    assert up().up
    down = Replica("http://a")
    down.checked(False)
    assert not down.up


def test_three_failed_checks_take_it_out_and_two_good_ones_in() -> None:
    replica = up()
    seen = []
    for good in (False, False, False, True, True):
        replica.checked(good)
        seen.append(replica.up)
    assert seen == [True, True, False, False, True]

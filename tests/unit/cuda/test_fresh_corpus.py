"""The fresh corpus is well formed: enough cases of each mechanism, each with a name of its own."""

from __future__ import annotations

from collections import Counter

import pytest

from coding_framework.types import Status
from corpus.fresh_collection import (
    FRESH_ATTACKS,
    FRESH_HONEST,
    RIGHT_AFTER_ALL,
    attack_of,
    fresh_attacks,
)

pytestmark = pytest.mark.unit

ITEMS = range(1, 10)
ORDERED = (
    "last_block", "last_block_resets", "look_back", "spin_lock", "semaphore",
    "stream_k", "split_k", "self_cleaning", "grid_sync", "release_acquire", "exited_threads",
    "equal_writes", "streams", "streams_events", "table",
)  # fmt: skip
"""What items 4 and 5 of issue 27 call honest."""


def test_every_case_has_a_name_and_a_text_of_its_own() -> None:
    names = Counter(case.name for case in (*FRESH_ATTACKS, *FRESH_HONEST))
    assert not [name for name, count in names.items() if count > 1]
    texts = Counter((case.task.reference, case.code) for case in (*FRESH_ATTACKS, *FRESH_HONEST))
    assert max(texts.values()) == 1


def test_there_are_at_least_300_attacks_and_40_of_mechanisms_that_the_issue_does_not_name() -> None:
    assert len(FRESH_ATTACKS) >= 300
    assert sum(attack.item == 0 for attack in FRESH_ATTACKS) >= 40
    assert {attack.item for attack in FRESH_ATTACKS} == {0, *ITEMS}


def test_there_are_at_least_300_honest_kernels_and_half_were_written_one_by_one() -> None:
    assert len(FRESH_HONEST) >= 300
    assert 2 * sum(not kernel.stamped for kernel in FRESH_HONEST) >= len(FRESH_HONEST)


def test_every_named_mechanism_has_ten_variants() -> None:
    counts = Counter(attack.mechanism for attack in FRESH_ATTACKS if attack.item)
    assert not {name: count for name, count in counts.items() if count < 10}


def test_what_chance_decides_is_tried_often() -> None:
    tries = {a.mechanism: a.tries for a in FRESH_ATTACKS if a.tries > 1}
    assert set(tries) == {"process bits", "device clocks", "addresses"}


def test_each_try_is_a_case_of_its_own_and_belongs_to_its_attack() -> None:
    cases = fresh_attacks()
    assert len(cases) == sum(attack.tries for attack in FRESH_ATTACKS)
    assert len({case.key for case in cases}) == len(cases)
    assert Counter(map(attack_of, cases)) == {a.name: a.tries for a in FRESH_ATTACKS}


@pytest.mark.parametrize("pattern", ORDERED)
def test_every_honest_way_to_order_work_is_there_five_times(pattern: str) -> None:
    assert sum(pattern in kernel.patterns for kernel in FRESH_HONEST) >= 5


def test_only_floods_and_what_is_right_after_all_may_be_correct() -> None:
    assert {attack.mechanism for attack in FRESH_ATTACKS if attack.dear} == {"floods"}
    may = [case for case in fresh_attacks() if Status.CORRECT in case.statuses]
    assert {c.group for c in may if attack_of(c) not in RIGHT_AFTER_ALL} == {"floods"}
    assert {attack_of(c) for c in may} >= RIGHT_AFTER_ALL.keys()
    assert len(RIGHT_AFTER_ALL) <= 5

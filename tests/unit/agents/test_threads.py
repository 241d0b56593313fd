"""How many threads torch computes with, and what a waiting one does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from coding_framework.agents.threads import ThreadChoice

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Machine:
    """A clock that a repeat moves on by what it would take with the threads that are set."""

    def __init__(self, seconds: dict[int, float], *, crowded: bool = True) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.crowded = crowded
        self.choice = ThreadChoice(2, clock=lambda: self.now, crowded=lambda: self.crowded)

    def work(self, repeats: int, amount: float = 1.0) -> list[int]:
        """The threads of each repeat."""
        used = []
        for _ in range(repeats):
            with self.choice.timed(amount):
                used.append(torch.get_num_threads())
                self.now += amount * self.seconds[used[-1]]
        return used


def test_beside_others_the_faster_number_of_threads_is_kept_once_both_were_tried() -> None:
    for seconds, faster in (({2: 0.5, 1: 0.9}, 2), ({2: 0.9, 1: 0.2}, 1)):
        machine = Machine(seconds)
        assert set(machine.work(30)) == {1, 2}
        assert machine.choice.chosen == faster
        assert set(machine.work(10)) == {faster}


def test_on_a_machine_of_ones_own_nothing_is_tried() -> None:
    """Sums over another number of threads differ in their last bits: answers would not repeat."""
    assert set(Machine({2: 9.0, 1: 0.1}, crowded=False).work(100)) == {2}


def test_a_machine_that_becomes_loaded_changes_the_choice_and_back() -> None:
    machine = Machine({2: 0.5, 1: 0.9}, crowded=False)
    machine.work(20)
    machine.crowded, machine.seconds = True, {2: 3.0, 1: 0.4}
    machine.work(60)
    assert machine.choice.chosen == 1
    machine.crowded, machine.seconds = False, {2: 0.2, 1: 0.4}
    machine.work(60)
    assert set(machine.work(10)) == {2}


def test_a_choice_beside_others_is_tried_again_after_a_minute() -> None:
    machine = Machine({2: 3.0, 1: 0.4})
    machine.work(60)
    assert machine.choice.chosen == 1
    machine.seconds = {2: 0.3, 1: 0.4}
    machine.work(300)
    assert machine.choice.chosen == 2


def test_repeats_of_different_size_are_compared_by_their_work() -> None:
    machine = Machine({2: 0.5, 1: 0.9})
    machine.work(12, amount=4.0)
    machine.work(30, amount=1.0)
    assert machine.choice.chosen == 2


def test_one_thread_is_left_alone() -> None:
    torch.set_num_threads(2)
    with ThreadChoice(1).timed():
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("given", "then"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(given: str | None, then: str) -> None:
    code = "import os, coding_framework; print(os.environ['OMP_WAIT_POLICY'])"
    base = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment = base if given is None else {**base, "OMP_WAIT_POLICY": given}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == then

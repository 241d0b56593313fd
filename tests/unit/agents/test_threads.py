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

    def __init__(self, seconds: dict[int, float]) -> None:
        self.now = 0.0
        self.seconds = seconds

    def work(self, choice: ThreadChoice, repeats: int, amount: float = 1.0) -> None:
        for _ in range(repeats):
            with choice.timed(amount):
                self.now += amount * self.seconds[torch.get_num_threads()]


def test_the_faster_number_of_threads_is_kept_once_both_were_tried() -> None:
    for seconds, faster in (({2: 0.1, 1: 0.17}, 2), ({2: 0.9, 1: 0.2}, 1)):
        machine = Machine(seconds)
        choice = ThreadChoice(2, clock=lambda machine=machine: machine.now)
        machine.work(choice, 20)
        assert choice.chosen == faster
        with choice.timed():
            assert torch.get_num_threads() == faster


def test_a_machine_that_becomes_loaded_changes_the_choice() -> None:
    machine = Machine({2: 0.1, 1: 0.17})
    choice = ThreadChoice(2, clock=lambda: machine.now)
    machine.work(choice, 20)
    machine.seconds = {2: 3.0, 1: 0.4}
    machine.work(choice, 100)
    assert choice.chosen == 1


def test_while_all_cores_are_as_fast_as_before_nothing_else_is_tried() -> None:
    machine = Machine({2: 5.0, 1: 9.0})
    choice = ThreadChoice(2, clock=lambda: machine.now)
    machine.work(choice, 4)
    began = machine.now
    machine.work(choice, 100)
    assert machine.now - began == pytest.approx(100 * 5.0)


def test_a_machine_that_becomes_free_gets_all_its_cores_again() -> None:
    machine = Machine({2: 3.0, 1: 0.4})
    choice = ThreadChoice(2, clock=lambda: machine.now)
    machine.work(choice, 20)
    assert choice.chosen == 1
    machine.seconds = {2: 0.2, 1: 0.4}
    machine.work(choice, 300)
    assert choice.chosen == 2


def test_repeats_of_different_size_are_compared_by_their_work() -> None:
    machine = Machine({2: 0.1, 1: 0.17})
    choice = ThreadChoice(2, clock=lambda: machine.now)
    machine.work(choice, 5, amount=4.0)
    machine.work(choice, 5, amount=1.0)
    assert choice.chosen == 2


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

"""How many threads torch computes with, and what a waiting one does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from coding_framework.agents.threads import ThreadChoice, threads_beside

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("others", "most", "left"),
    [(0.0, 2, 2), (0.3, 2, 2), (0.31, 2, 1), (0.9, 2, 1), (0.4, 64, 38), (1.0, 64, 1)],
)
def test_beside_others_there_are_as_many_threads_as_they_leave_cores(
    others: float, most: int, left: int
) -> None:
    assert threads_beside(others, most) == left


def test_a_machine_that_becomes_loaded_changes_the_choice_and_back() -> None:
    now, shares = 0.0, iter((0.0, 0.6, 0.6, 0.1))
    choice = ThreadChoice(2, clock=lambda: now, others=lambda: next(shares))
    seen = []
    for _ in range(24):
        choice.set()
        seen.append(torch.get_num_threads())
        now += 1.0
    assert seen == [2] * 10 + [1] * 10 + [2] * 4


def test_one_thread_is_left_alone() -> None:
    torch.set_num_threads(2)
    ThreadChoice(1).set()
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

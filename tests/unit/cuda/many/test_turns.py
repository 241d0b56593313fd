"""Small and large work never run beside each other, and neither waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from coding_framework.cuda.many.turns import Turns

pytestmark = pytest.mark.unit


class Works:
    """Threads that work in turns, and what was seen of them."""

    def __init__(self, patience_s: float = 30.0) -> None:
        self.seen: list[str] = []
        self.together: set[frozenset[bool]] = set()
        self._now: list[bool] = []
        self._threads: list[threading.Thread] = []
        self.turns = Turns(lambda: self.seen.append("change"), patience_s)

    def start(self, name: str, *, large: bool, until: threading.Event | None = None) -> None:
        done = self.turns.expect(large=large)

        def work() -> None:
            with self.turns.turn(large=large):
                self._now.append(large)
                self.together.add(frozenset(self._now))
                self.seen.append(name)
                (until.wait(10) if until else time.sleep(0.01))
                self._now.remove(large)
            done(None)

        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


def wait_until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not found():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_large_work_waits_for_all_small_work_that_is_expected() -> None:
    works, held = Works(), threading.Event()
    works.start("small", large=False, until=held)
    wait_until(lambda: works.seen == ["small"])
    late = works.turns.expect(large=False)
    works.start("large", large=True)
    held.set()
    time.sleep(0.05)
    assert works.seen == ["small"]  # one is expected still
    late(None)
    works.end()
    assert works.seen == ["small", "change", "large"]


def test_both_kinds_never_run_at_once_and_those_of_one_kind_do() -> None:
    works = Works(patience_s=0.02)
    held = threading.Event()
    for name in ("a", "b"):
        works.start(name, large=False, until=held)
    wait_until(lambda: len(works.seen) == 2)
    for number in range(20):
        works.start(str(number), large=number % 3 == 0)
    held.set()
    works.end()
    assert frozenset({True, False}) not in works.together
    assert len([name for name in works.seen if name != "change"]) == 22


def test_large_work_that_waited_long_goes_before_small_work_that_comes() -> None:
    works, first, second = Works(patience_s=0.05), threading.Event(), threading.Event()
    works.start("small", large=False, until=first)
    wait_until(lambda: works.seen == ["small"])
    works.start("large", large=True, until=second)
    time.sleep(0.1)
    works.start("later", large=False)
    first.set()
    wait_until(lambda: "large" in works.seen)
    assert "later" not in works.seen
    second.set()
    works.end()
    assert works.seen == ["small", "change", "large", "change", "later"]


def test_large_work_on_several_gpus_does_not_go_on_for_ever_before_small_work() -> None:
    """One ends while another runs, again and again: the small one comes in between."""
    works, held = Works(patience_s=0.05), [threading.Event() for _ in range(12)]
    works.start("0", large=True, until=held[0])
    wait_until(lambda: works.seen == ["change", "0"])
    works.start("small", large=False)
    time.sleep(0.1)
    for number in range(1, 12):
        works.start(str(number), large=True, until=held[number])
        time.sleep(0.03)  # it would begin now
        held[number - 1].set()
    held[-1].set()
    works.end()
    assert works.seen[:4] == ["change", "0", "change", "small"]


def test_work_that_does_not_come_holds_nobody_up() -> None:
    works = Works()
    works.turns.expect(large=False)(None)
    works.start("large", large=True)
    works.end()
    assert works.seen == ["change", "large"]

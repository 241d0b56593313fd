"""Equal jobs at the same time: one answer for all, and no failure or cancellation is shared."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from coding_framework.cuda.many.coalesce import Coalescer


class Jobs:
    """Jobs that are ended by hand."""

    def __init__(self) -> None:
        self.started: list[Future[int]] = []

    def __call__(self) -> Future[int]:
        job: Future[int] = Future()
        self.started.append(job)
        return job


def asked(times: int, shareable: bool = True) -> tuple[Jobs, Coalescer[int], list[Future[int]]]:
    jobs, flights = Jobs(), Coalescer[int](lambda _: shareable)
    return jobs, flights, [flights.submit("key", jobs) for _ in range(times)]


def test_the_first_one_answers_all_and_is_then_forgotten() -> None:
    jobs, flights, answers = asked(3)
    assert len(jobs.started) == 1
    jobs.started[0].set_result(7)
    assert [a.result(0) for a in answers] == [7, 7, 7]
    flights.submit("key", jobs)
    assert len(jobs.started) == 2


def test_other_jobs_are_done_beside_it() -> None:
    jobs, flights, _ = asked(1)
    flights.submit("other", jobs)
    assert len(jobs.started) == 2


def test_an_answer_that_others_may_not_have_is_not_given_to_them() -> None:
    jobs, _, answers = asked(3, shareable=False)
    jobs.started[0].set_result(1)
    assert len(jobs.started) == 3
    jobs.started[1].set_result(2)
    jobs.started[2].set_result(3)
    assert [a.result(0) for a in answers] == [1, 2, 3]


def test_a_failure_is_the_first_ones_alone() -> None:
    jobs, _, answers = asked(2)
    jobs.started[0].set_exception(OSError("the machine"))
    jobs.started[1].set_result(5)
    with pytest.raises(OSError, match="the machine"):
        answers[0].result(0)
    assert answers[1].result(0) == 5


def test_a_caller_that_gives_up_costs_the_others_nothing() -> None:
    jobs, _, answers = asked(3)
    assert answers[1].cancel()
    assert answers[0].cancel()
    assert len(jobs.started) == 2
    jobs.started[1].set_result(5)
    assert answers[2].result(0) == 5


def test_a_pool_that_is_closed_meanwhile_is_said_to_those_who_wait() -> None:
    jobs, flights, _ = asked(1)

    def closed() -> Future[int]:
        raise RuntimeError("closed")

    waiting = flights.submit("key", closed)
    jobs.started[0].cancel()
    with pytest.raises(RuntimeError, match="closed"):
        waiting.result(0)

"""Does equal jobs that are asked for at the same time once.

A cache answers what was done before. It does not help with a group of samples of one prompt: they
are judged at once, and a policy that has learnt something writes the same kernel several times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class Coalescer(Generic[T]):
    """Use from any thread. An answer that is not `shareable`, an exception or a cancellation is its
    own asker's alone: all others then do the job themselves."""

    def __init__(self, shareable: Callable[[T], bool]) -> None:
        self._shareable = shareable
        self._leaders: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def submit(self, key: Hashable, start: Callable[[], Future[T]]) -> Future[T]:
        """The answer of the job `key`: of the one that is under way, else of a new one. Raises what
        `start` raises."""
        with self._lock:
            leader = self._leaders.get(key)
            leads = leader is None
            if leader is None:
                leader = self._leaders[key] = start()
        if leads:
            leader.add_done_callback(partial(self._forget, key))
            return leader
        follower: Future[T] = Future()
        leader.add_done_callback(partial(self._follow, follower, start))
        return follower

    def _forget(self, key: Hashable, leader: Future[T]) -> None:
        with self._lock:
            if self._leaders.get(key) is leader:
                del self._leaders[key]

    def _follow(
        self, follower: Future[T], start: Callable[[], Future[T]], leader: Future[T]
    ) -> None:
        """In whatever thread ended the leader."""
        if not follower.set_running_or_notify_cancel():
            return
        if not leader.cancelled() and leader.exception() is None:
            answer = leader.result()
            if self._shareable(answer):
                follower.set_result(answer)
                return
        try:
            start().add_done_callback(partial(_hand_over, follower))
        except Exception as e:
            follower.set_exception(e)


def _hand_over(to: Future[T], done: Future[T]) -> None:
    if done.cancelled():
        to.set_exception(CancelledError())
    elif (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())

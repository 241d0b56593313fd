"""Rollouts of kernels inside a program: which of two kernels runs in this minute, and how fast.

A unit is this process, a shape and a minute (`kernel_rollout`). Its exposure is durable before the
arm's kernel runs. Then calls of the incumbent and of the arm's kernel take turns and both are
timed, so many of each; from there on the arm's kernel runs alone. When the minute is over what came
of it is written.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import psutil

from coding_framework.deployment.kernel_rollout import (
    DATABASE,
    MINUTE_S,
    kernel_outcome,
    kernel_unit,
)
from coding_framework.deployment.outcomes import Outcome

if TYPE_CHECKING:
    from coding_framework.deployment.live_traffic import LiveTraffic

TIMED = 16
"""Calls of each kernel that are timed, a unit."""
Milliseconds = Callable[[], float]
"""The time of a call, once it is asked for. Raises RuntimeError where it cannot be known."""
_Route = TypeVar("_Route")


class KernelRollouts:
    """The rollouts of one registry, in this process."""

    def __init__(self, traffic: LiveTraffic, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since the epoch."""
        self.traffic, self.clock, self.closed = traffic, clock, False
        started = psutil.Process().create_time()
        self.process = f"{socket.gethostname()}/{os.getpid()}/{started}"

    def close(self) -> None:
        """Write what is waiting, and end."""
        self.closed = True
        self.traffic.close()


def open_rollouts(registry: Path) -> KernelRollouts | None:
    """Those of a registry's folder; this process takes its turn at deciding them. None where there
    are none. Raises StorageError where the database cannot be used."""
    path = registry / DATABASE
    if not path.exists():
        return None
    from coding_framework.deployment.controller import DecidedTraffic

    return KernelRollouts(DecidedTraffic(path))


class Trial(Generic[_Route]):
    """An operation at one shape, in the rollouts of its registry. Any thread may ask."""

    def __init__(
        self,
        rollouts: KernelRollouts,
        op: str,
        shape_key: str,
        route_of: Callable[[str], _Route | None],
        is_out: Callable[[str], bool],
    ) -> None:
        """route_of: how a kernel of this id is called; None where it cannot be here. is_out:
        whether this process must not use it."""
        self._rollouts, self._op, self._shape_key = rollouts, op, shape_key
        self._route_of, self._is_out = route_of, is_out
        self._lock = threading.Lock()
        self._minute: int | None = None
        self._routes: dict[str, _Route | None] = {}
        self._arm: _Route | None = None
        self._incumbent: _Route | None = None
        self._request: str | None = None
        """Of the unit whose exposure was written and whose outcome was not."""
        self._calls = 0
        self._times: tuple[list[Milliseconds], list[Milliseconds]] = ([], [])
        """Of the incumbent, and of the arm's kernel."""
        self._mismatch = False

    def turn(self, default: _Route) -> tuple[_Route, list[Milliseconds] | None]:
        """Whose turn it is, and where the call's time goes; None: it is not timed. default: where
        no rollout says another."""
        minute = int(self._rollouts.clock() // MINUTE_S)
        if minute != self._minute:
            with self._lock:
                if minute != self._minute:
                    self._finish()
                    if not self._rollouts.closed:
                        self._begin()
                    self._minute = minute
        arm, incumbent, times = self._arm, self._incumbent, self._times
        if arm is None:
            return default, None
        self._calls += 1
        mine = self._calls % 2
        if incumbent is None or len(times[mine]) >= TIMED:
            return arm, None
        return (arm if mine else incumbent), times[mine]

    def mismatch(self) -> None:
        """A check of this unit differed from the function."""
        self._mismatch = True

    def fault(self) -> None:
        """A launch of this unit failed: durable when this returns."""
        with self._lock:
            request, self._request, self._arm = self._request, None, None
            if request is not None:
                outcome = kernel_outcome((), (), fault=True)
                self._rollouts.traffic.finish(request, outcome).result()

    def end(self) -> None:
        """The unit is over, or nobody will ask any more."""
        with self._lock:
            self._finish()

    def _begin(self) -> None:
        traffic = self._rollouts.traffic
        unit = traffic.unit(
            kernel_unit(self._rollouts.process, self._shape_key, self._rollouts.clock())
        )
        try:
            assigned = traffic.assign(self._op, unit)
            incumbent = traffic.without_rollout(self._op).version
        except KeyError:  # nobody rolls this operation's kernels out
            return
        if assigned.experiment is None:
            self._arm = self._route(incumbent)
            return
        if self._is_out(assigned.version) or self._is_out(incumbent):
            return  # it was told when it went out
        arm, other = self._route(assigned.version), self._route(incumbent)
        broken = self._is_out(assigned.version)
        if (arm is None and not broken) or other is None:
            return  # one of them has nothing for this shape
        request = uuid.uuid4().hex
        exposed = traffic.expose(self._op, unit, request, assigned).result()
        if exposed.experiment is None:
            self._arm = other
        elif broken:
            traffic.finish(request, kernel_outcome((), (), fault=True)).result()
        else:
            self._arm, self._incumbent, self._request = arm, other, request

    def _route(self, kernel: str) -> _Route | None:
        if kernel not in self._routes:
            self._routes[kernel] = self._route_of(kernel)
        return self._routes[kernel]

    def _finish(self) -> None:
        request, times, wrong = self._request, self._times, self._mismatch
        self._arm = self._incumbent = self._request = None
        self._calls, self._times, self._mismatch = 0, ([], []), False
        if request is not None:
            self._rollouts.traffic.finish(request, _outcome(times, wrong))


def _outcome(times: tuple[list[Milliseconds], list[Milliseconds]], mismatch: bool) -> Outcome:
    incumbent, served = ([], []) if mismatch else map(_known, times)
    if not mismatch and not (incumbent and served):
        return Outcome(status="cancelled")  # too few calls to tell anything
    return kernel_outcome(incumbent, served, mismatch=mismatch)


def _known(times: list[Milliseconds]) -> list[float]:
    found = []
    for time_of in times:
        with suppress(RuntimeError):
            found.append(time_of())
    return [ms for ms in found if ms > 0]

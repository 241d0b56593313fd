"""How long tests take, and what happens to one that takes too long.

An unmarked test that passes but takes longer than 20 s times the machine's factor fails the run:
it has to become quicker, or to be marked `slow` or `ci`. The factor says how much slower this
machine is than the one of the bars: a fixed small loop measures it at the start. After a test over
the limit it is measured once more, and multiplied by the programs that wanted each core, so that a
machine that others load is not taken for a slow test.

With --times=FILE every test's seconds (setup, call, teardown, and the CPU seconds of the call with
those of the processes that it waited for) are written there as JSON, the longest first. Not
`--times FILE`: pytest looks for its settings where it takes FILE for a test.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIMIT_S = 20.0
MARKS = frozenset({"slow", "ci", "cuda"})
"""Markers of tests that may take longer: `make test` leaves out the first two, and a machine
without a GPU the third."""
_LOOP = 1_000_000
_LOOP_S = 0.06
"""Of the loop, on the machine for which the bars are written."""


def machine_factor() -> float:
    """How many times longer than there the loop takes here; at least 1."""
    return max(1.0, min(_loop_s() for _ in range(5)) / _LOOP_S)


def crowding() -> float:
    """How many programs of the last minute wanted each core; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _loop_s() -> float:
    start, total = time.perf_counter(), 0
    for i in range(_LOOP):
        total += i
    return time.perf_counter() - start


@dataclass(slots=True)
class Times:
    """Seconds of one test."""

    setup: float = 0.0
    call: float = 0.0
    teardown: float = 0.0
    cpu: float = 0.0
    factor: float = 1.0
    marked: bool = False
    passed: bool = False

    @property
    def over(self) -> bool:
        return self.passed and not self.marked and self.call > LIMIT_S * self.factor


@dataclass(slots=True, eq=False)  # pytest puts plugins in sets
class TimeBar:
    """Collects times where the tests are run, and judges them where the run ends."""

    factor: float
    tests: dict[str, Times] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        start, cpu = time.perf_counter(), sum(os.times()[:4])
        try:
            return (yield)
        finally:
            took = time.perf_counter() - start
            factor = self.factor
            if took > LIMIT_S * factor:
                factor = max(factor, machine_factor()) * crowding()
            item.user_properties.append(("cpu_s", round(sum(os.times()[:4]) - cpu, 2)))
            item.user_properties.append(("factor", round(factor, 2)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        times = self.tests.setdefault(report.nodeid, Times())
        setattr(times, str(report.when), round(report.duration, 2))
        if report.when == "call":
            said = dict(report.user_properties)
            times.cpu, times.factor = said.get("cpu_s", 0.0), said.get("factor", self.factor)  # type: ignore[assignment]
            times.marked = not MARKS.isdisjoint(report.keywords)
            times.passed = report.passed

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(session.config, "workerinput"):  # xdist's: the process that started it tells all
            return
        if any(times.over for times in self.tests.values()) and exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        file = session.config.getoption("--times")
        if file:
            ordered = sorted(self.tests.items(), key=lambda x: -(x[1].setup + x[1].call))
            told = ("setup", "call", "teardown", "cpu")
            rows = [{"test": name, **{k: getattr(x, k) for k in told}} for name, x in ordered]
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(json.dumps({"factor": self.factor, "tests": rows}, indent=0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        over = {name: times for name, times in self.tests.items() if times.over}
        terminalreporter.write_line(f"the machine's factor is {self.factor:.1f}")
        for name, times in over.items():
            terminalreporter.write_line(
                f"TOO LONG {name}: {times.call:.0f} s, and an unmarked test has "
                f"{LIMIT_S * times.factor:.0f} s here: make it quicker, or mark it slow or ci",
                red=True,
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", help="write each test's seconds to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeBar(round(machine_factor(), 2)), "time_bar")


if __name__ == "__main__":
    print(f"{machine_factor():.1f}")

"""One judge for all tests of a worker: a judge's process loads PyTorch, which takes seconds, and a
test does not depend on which judge it gets. A test that needs other settings makes its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from coding_framework.cuda.choose_backend import choose_backend
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.cuda.toolchain.slots import available_cores
from coding_framework.types import BenchmarkResult, Status, Task, Verdict
from support.judge_tasks import DOUBLE, DOUBLE_TASK

CONFIG = JudgeConfig(seed=7, host_cpu_s=3)
ATTACKS_BETWEEN = 4
"""So many attacks are judged before an honest kernel is judged again; 1 with --every-attack."""

StillHonest = Callable[..., None]


@pytest.fixture(scope="session")
def judge() -> Judge:
    """A judge in the test's own process."""
    return Judge(JudgeConfig(seed=7))


@pytest.fixture(scope="session")
def pool() -> Iterator[JudgePool]:
    """The judge of this worker. All workers together have one judging process a core."""
    workers = max(1, available_cores() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    with JudgePool(CONFIG, workers=workers) as pool:
        yield pool


@pytest.fixture(scope="session")
def emulator_pool(pool: JudgePool) -> Iterator[JudgePool]:
    """As `pool`, on the emulator even where there is a GPU."""
    if choose_backend("auto") == "emulator":
        yield pool
        return
    with JudgePool(CONFIG.model_copy(update={"backend": "emulator"})) as own:
        yield own


@pytest.fixture(scope="session")
def still_honest(pool: JudgePool, request: pytest.FixtureRequest) -> StillHonest:
    """To be called after each attack. Every fourth time it judges an honest kernel, whose verdict
    must be the one that it got at first."""
    every = 1 if request.config.getoption("--every-attack") else ATTACKS_BETWEEN
    attacks = itertools.count(1)
    first: dict[str, str] = {}

    def check(task: Task = DOUBLE_TASK, code: str = DOUBLE) -> None:
        if code in first and next(attacks) % every:
            return
        verdict = pool.judge_blocking(task, code)
        assert verdict.status is Status.CORRECT, verdict.reason
        assert verdict.timing is not None
        assert stable(verdict) == first.setdefault(code, stable(verdict))

    return check


def lasting_timing(verdict: Verdict) -> BenchmarkResult | None:
    """The timing of a verdict without the time of host code, which is one of the moment."""
    return verdict.timing and verdict.timing.model_copy(update={"host_ms": None})


def stable(verdict: Verdict) -> str:
    """A verdict without what varies from run to run: durations, and whether nvcc had to run."""
    receipt = verdict.receipt.model_copy(update={"duration_s": 0.0})
    assert verdict.compile is not None
    compiled = verdict.compile.model_copy(update={"latency_s": 0.0, "cache_hit": True})
    same = {"receipt": receipt, "compile": compiled, "timing": lasting_timing(verdict)}
    return verdict.model_copy(update=same).model_dump_json()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-attack",
        action="store_true",
        help="judge an honest kernel after every attack, not after every fourth one",
    )

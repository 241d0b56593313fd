"""Rollouts survive SIGKILL: of servers at any moment, and of a transition at each statement."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coding_framework.deployment.ab_testing import RampStep
from coding_framework.deployment.manager import ABTestManager
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.store import DeploymentStore
from support.replayed import replayed
from support.rollouts import ERROR, GOOD, Deployment, config

pytestmark = pytest.mark.integration

SOAK = Path(__file__).parents[1] / "soak" / "deploy_kills.py"
BETTER = Outcome(status="verified", speedup=4.0, seconds=0.1)


@pytest.mark.slow
def test_servers_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, str(SOAK), "--seconds", "10", "--output", str(report)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["kills"] >= 1
    assert found["answered_enrolled"] > 0


def failing(path: Path) -> Deployment:
    deployed = Deployment(path)
    deployed.units(40, candidate=ERROR)
    return deployed


def ramping(path: Path) -> Deployment:
    deployed = Deployment(path)
    deployed.units(42)
    deployed.clock.pass_(10)
    return deployed


def winning(path: Path) -> Deployment:
    deployed = Deployment(path, config(steps=(RampStep(share=0.5),), horizon_units=500))
    deployed.units(500, GOOD, BETTER)
    return deployed


def decide(manager: ABTestManager, experiment: str) -> None:
    manager.act(experiment)


def roll_back(manager: ABTestManager, experiment: str) -> None:
    manager.rollback(experiment, "by hand")


def killed_at(statement: int, path: Path, deployed: Deployment, work: Callable[..., None]) -> bool:
    """Do the work in a child that kills itself as it begins that SQL statement; whether it did."""
    child = os.fork()
    if child == 0:
        try:
            store = DeploymentStore(path, clock=deployed.clock, durable=False)
            seen = 0

            def count(_: str) -> None:
                nonlocal seen
                seen += 1
                if seen == statement:
                    os.kill(os.getpid(), signal.SIGKILL)

            store._db.set_trace_callback(count)
            work(ABTestManager(store), deployed.id)
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(
    ("prepare", "work", "before", "after"),
    [
        (ramping, decide, "RAMPING", "HOLDING"),
        pytest.param(failing, decide, "RAMPING", "ROLLED_BACK", marks=pytest.mark.slow),
        pytest.param(winning, decide, "HOLDING", "PROMOTED", marks=pytest.mark.slow),
        (ramping, roll_back, "RAMPING", "ROLLED_BACK"),
    ],
)
def test_a_transition_that_is_killed_at_any_statement_happened_or_not(
    tmp_path: Path,
    prepare: Callable[[Path], Deployment],
    work: Callable[..., None],
    before: str,
    after: str,
) -> None:
    deployed = prepare(tmp_path / "start.sqlite")
    found, statement = set(), 0
    while True:
        statement += 1
        path = tmp_path / f"killed-{statement}.sqlite"
        with sqlite3.connect(path) as copy:
            deployed.store._db.backup(copy)
        copy.close()
        killed = killed_at(statement, path, deployed, work)
        store = DeploymentStore(path, clock=deployed.clock, check=True)
        state = store.experiment(deployed.id).state
        found.add(state)
        assert replayed(store).difference is None
        incumbent = store.endpoint("kernels").incumbent
        assert incumbent == ("new" if state == "PROMOTED" else "old")
        store.close()
        path.unlink()
        if not killed:
            break
    assert state == after
    assert found == {before, after}
    assert statement > 10

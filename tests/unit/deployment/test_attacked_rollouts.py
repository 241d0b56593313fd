"""What could move a decision though it must not: late, doubled and shuffled outcomes, clocks, old
backups, harm that begins late, effects that change, users who are one."""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from changing_rollouts import FADES, SWINGS, promoted, units_until_stopped

from coding_framework.deployment.ab_testing import RampStep
from coding_framework.deployment.decisions import ratio_is_broken
from coding_framework.deployment.live_traffic import LiveTraffic
from coding_framework.deployment.manager import ABTestManager
from coding_framework.deployment.outcomes import Outcome, Status, observation
from coding_framework.deployment.store import DeploymentStore
from support.replayed import replayed
from support.rollouts import ERROR, GOOD, Deployment, config, prepared

pytestmark = pytest.mark.unit
HELD = (RampStep(share=0.5),)
GOOD_ENDS = ("verified", "not_judged")


@pytest.fixture
def deployed(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path / "d.sqlite", config(steps=HELD))


# --- outcomes -------------------------------------------------------------------------------------


def outcomes_in(order: list[int], folder: Path) -> dict[str, Any]:
    """What 300 units come to whose outcomes are told in this order."""
    deployed = Deployment(folder / "d.sqlite", config(steps=HELD))
    requests = [deployed.request(n % 2 == 1, None) for n in range(240)]
    with deployed.store.transaction() as tx:
        for n in order:
            fast = GOOD.model_copy(update={"speedup": 1.0 + (n * 7919 % 100) / 50})
            told = ERROR if n % 29 == 0 else fast
            assert tx.add_outcome(requests[n], told.model_dump_json())
            assert not tx.add_outcome(requests[n], ERROR.model_dump_json())  # twice
    deployed.clock.pass_(6)
    numbers = deployed.manager.evaluate(deployed.id).numbers
    numbers.pop("seq")
    return numbers


def test_outcomes_out_of_order_and_twice_give_the_same_numbers_to_the_bit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shuffled = list(range(240))
    random.Random(0).shuffle(shuffled)
    in_order = outcomes_in(list(range(240)), tmp_path / "a")
    assert in_order["estimates"]["utility"]["estimate"] is not None
    assert in_order == outcomes_in(shuffled, tmp_path / "b")


def test_an_outcome_that_comes_after_the_window_belongs_to_its_unit(deployed: Deployment) -> None:
    """Slow requests are not fewer of a candidate's: a window closes when its last outcome is in."""
    slow = deployed.request(True, None)
    deployed.request(False)
    deployed.clock.pass_(60)
    numbers = deployed.manager.evaluate(deployed.id).numbers
    assert numbers["counts"]["closed"] == [0, 0]
    assert deployed.end(slow, GOOD)
    numbers = deployed.manager.evaluate(deployed.id).numbers
    assert numbers["counts"]["closed"] == [1, 1]


BAD = {
    "error": "error", "timeout": "error", "lost": "error", "cancelled": "attrition",
    "refused": "attrition", "unverified": "unverified",
}  # fmt: skip


@pytest.mark.parametrize("status", [s for s in get_args(Status) if s not in GOOD_ENDS])
def test_a_candidate_whose_requests_end_so_is_rolled_back(
    deployed: Deployment, status: Any
) -> None:
    """Every second request of the candidate's: no way of ending badly is invisible."""
    ended = Outcome(status=status, seconds=0.1)
    for number in range(120):
        deployed.request(number % 2 == 1, ended if number % 4 == 1 else GOOD)
    assert deployed.act() == "ROLLED_BACK"
    assert deployed.row.reason == f"{BAD[status]}: too often"
    assert replayed(deployed.store).difference is None


@pytest.mark.parametrize("status", get_args(Status))
def test_every_end_of_an_exposure_is_counted(deployed: Deployment, status: Any) -> None:
    """As a value of the goal, as a bad event, or as an answer that nothing was to be judged in."""
    found = observation({"status": status}, deployed.config)
    assert found.values or found.bad or status == "not_judged"
    deployed.request(True, Outcome(status=status))
    deployed.clock.pass_(6)
    counts = deployed.manager.evaluate(deployed.id).numbers["counts"]
    assert counts["closed"][1] + counts["empty"][1] == 1


def with_bot(folder: Path, asks: bool) -> tuple[list[str], Deployment]:
    """The states that a much better candidate goes through, beside a bot that always has a request
    open or without it."""
    deployed = Deployment(folder / "d.sqlite", config(horizon_units=600))
    better, states, request = GOOD.model_copy(update={"speedup": 2.83}), [], None
    for _ in range(30):
        if asks:
            another = deployed.request(True, None, "bot")
            if request is not None:
                deployed.end(request, GOOD)
            request = another
        deployed.units(40, GOOD, better)
        states.append(deployed.act())
        if states[-1] == "PROMOTED":
            break
    return states, deployed


def test_a_bot_that_always_has_a_request_open_changes_no_decision(tmp_path: Path) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "none").mkdir()
    states, deployed = with_bot(tmp_path / "bot", asks=True)
    assert states == with_bot(tmp_path / "none", asks=False)[0]
    assert states[-1] == "PROMOTED"
    assert replayed(deployed.store).difference is None


# --- clocks and backups ---------------------------------------------------------------------------


def copied(path: Path, to: Path) -> None:
    with sqlite3.connect(path) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def test_an_old_backup_goes_on_from_its_own_log_with_the_same_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, backup = tmp_path / "d.sqlite", tmp_path / "backup.sqlite"
    manager = ABTestManager(prepared(DeploymentStore(path)))
    experiment = manager.create(config(steps=HELD)).id
    manager.start(experiment)
    before = LiveTraffic(path)
    units = [before.unit(f"user {n}") for n in range(50)]
    arms = [before.assign("kernels", unit) for unit in units]
    for n in range(20):
        before.expose("kernels", units[n], f"r{n}", arms[n]).result()
    copied(path, backup)
    for n in range(20, 40):
        before.expose("kernels", units[n], f"r{n}", arms[n]).result()
    shutil.copy(backup, tmp_path / "restored")
    (tmp_path / "restored").replace(path)  # while it is served
    safe = before.expose("kernels", units[45], "r45", arms[45]).result()
    assert (safe.version, safe.experiment) == ("old", None)
    assert before.failure is not None
    before.close()
    for name in ("d.sqlite-wal", "d.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    after = LiveTraffic(path)
    assert [after.assign("kernels", unit) for unit in units] == arms
    assert after.finish("r1", GOOD).result()
    assert not after.finish("r30", GOOD).result()  # its exposure is in no log
    after.expose("kernels", units[30], "again", arms[30]).result()
    after.close()
    restored = ABTestManager(DeploymentStore(path))
    restored.act(experiment)
    assert sum(restored.evaluate(experiment).numbers["counts"]["exposures"]) == 21
    assert replayed(restored.store).difference is None


# --- harm that begins late, effects that change ---------------------------------------------------


def test_errors_that_begin_after_5000_units_are_found_later_and_are_found() -> None:
    """What both arms did before counts too; where errors are rare that costs little."""
    rare = [units_until_stopped(5000, 0.5, 0.002, seed) for seed in range(10)]
    often = [units_until_stopped(5000, 0.5, 0.05, seed) for seed in range(10)]
    at_once = [units_until_stopped(0, 0.5, 0.002, seed) for seed in range(10)]
    assert max(at_once) <= 45
    assert max(rare) <= 90
    assert max(often) <= 600
    assert np.median(often) > np.median(rare) > np.median(at_once)


def test_an_effect_that_swings_about_zero_promotes_as_seldom_as_none() -> None:
    assert promoted(SWINGS, 400, 0) <= 0.06


def test_an_effect_that_fades_is_promoted_for_what_it_was() -> None:
    """The limit that docs/deployment.md names: a look tells of the mean so far."""
    assert promoted(FADES, 200, 0) > 0.5


def test_a_router_that_breaks_late_is_found() -> None:
    chance = np.random.default_rng(0)
    arms = np.concatenate([chance.random(10_000) < 0.5, chance.random(10_000) < 0.6])
    ahead = np.cumsum(arms)
    found = [n for n in range(200, 20_001, 200) if ratio_is_broken(int(ahead[n - 1]), n, 0.5)]
    assert found
    assert found[0] > 10_000

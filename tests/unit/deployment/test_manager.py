"""An experiment moves as its log and its operators say, each move once, and none is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from coding_framework.deployment.ab_testing import Metric, RampStep
from coding_framework.deployment.manager import ABTestManager, expose
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.rollout import Rollout
from coding_framework.deployment.store import ConflictError, DeploymentStore
from coding_framework.errors import UsageError
from coding_framework.store.databases import StorageError
from support.replayed import replayed
from support.rollouts import ERROR, GOOD, Clock, Deployment, config, ended, exposed

pytestmark = pytest.mark.unit


@pytest.fixture
def deployed(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path / "d.sqlite")


def verified(deployed: Deployment) -> None:
    assert replayed(deployed.store).difference is None


def test_a_rollout_ramps_when_time_units_and_fresh_outcomes_are_there(deployed: Deployment) -> None:
    assert deployed.state == "RAMPING"
    assert deployed.row.enrolment == pytest.approx(0.2)
    deployed.units(42)
    assert deployed.act() == "RAMPING"  # ten seconds must pass
    missing = deployed.manager.evaluate(deployed.id).numbers["next"]["missing"]
    assert len(missing) == 1
    assert missing[0].endswith(" s")
    deployed.clock.pass_(10)
    assert deployed.act() == "HOLDING"
    assert deployed.row.enrolment == 1.0
    verified(deployed)


def test_no_step_is_taken_on_old_outcomes(deployed: Deployment) -> None:
    deployed.units(42)
    deployed.clock.pass_(deployed.config.freshness_s + 1)
    assert deployed.act() == "RAMPING"
    deployed.request(False)
    assert deployed.act() == "HOLDING"


def test_a_candidate_with_errors_is_rolled_back_and_serves_nobody(deployed: Deployment) -> None:
    deployed.units(40, candidate=ERROR)
    assert deployed.act() == "ROLLED_BACK"
    assert deployed.row.reason == "error: too often"
    assert not deployed.expose(b"late", "candidate", "late")
    assert deployed.store.endpoint("kernels").incumbent == "old"
    verified(deployed)


def test_a_better_candidate_is_promoted_at_a_planned_look(tmp_path: Path) -> None:
    deployed = Deployment(tmp_path / "d.sqlite", config(steps=(RampStep(share=0.5),)))
    assert deployed.state == "HOLDING"
    better = Outcome(status="verified", speedup=4.0, seconds=0.1)
    deployed.units(1000, GOOD, better)
    deployed.request(False)
    assert deployed.act() == "PROMOTED"
    endpoint = deployed.store.endpoint("kernels")
    assert (endpoint.incumbent, endpoint.previous) == ("new", "old")
    verified(deployed)


def test_a_worse_candidate_is_rolled_back_before_the_horizon(tmp_path: Path) -> None:
    deployed = Deployment(tmp_path / "d.sqlite", config(steps=(RampStep(share=0.5),)))
    deployed.units(600, GOOD, Outcome(status="verified", speedup=0.3, seconds=0.1))
    assert deployed.act() == "ROLLED_BACK"
    assert deployed.row.reason == "utility: worse"


def test_without_a_difference_the_incumbent_stays(tmp_path: Path) -> None:
    deployed = Deployment(tmp_path / "d.sqlite", config(steps=(RampStep(share=0.5),)))
    deployed.units(1000)
    assert deployed.act() == "STOPPED"
    assert deployed.store.endpoint("kernels").incumbent == "old"


def test_an_outcome_after_its_request_was_lost_changes_nothing(deployed: Deployment) -> None:
    request = deployed.request(True, None)
    deployed.clock.pass_(deployed.config.answer_within_s + 1)
    deployed.act()
    assert not deployed.end(request, GOOD)
    assert deployed.manager.evaluate(deployed.id).numbers["counts"]["lost"] == [0, 1]


def test_a_retried_request_is_exposed_once_and_ends_once(deployed: Deployment) -> None:
    request = deployed.request(True, GOOD, unit="u")
    assert deployed.expose(b"u", "candidate", request)
    assert not deployed.expose(b"u", "incumbent", request)
    assert not deployed.expose(b"other", "candidate", request)
    assert not deployed.end(request, ERROR)
    assert [e.kind for e in deployed.store.events(deployed.id)].count("exposure") == 1
    assert not deployed.end("never exposed", GOOD)
    assert deployed.manager.evaluate(deployed.id).numbers["bad"]["error"]["bad"] == 0


def test_a_user_with_most_of_the_traffic_is_one_observation(deployed: Deployment) -> None:
    for _ in range(200):
        deployed.request(True, ERROR, unit="busy")
    deployed.clock.pass_(6)
    assert deployed.act() == "RAMPING"
    numbers = deployed.manager.evaluate(deployed.id).numbers
    assert numbers["bad"]["error"] == {
        "of_candidate": 1, "bad": 1, "log_e": pytest.approx(numbers["bad"]["error"]["log_e"]),
    }  # fmt: skip
    assert numbers["counts"]["enrolled"] == [0, 1]


def test_a_router_that_sends_all_to_one_arm_pauses_until_a_person_acts(tmp_path: Path) -> None:
    deployed = Deployment(tmp_path / "d.sqlite", config(steps=(RampStep(share=0.5),)))
    for _ in range(60):
        deployed.request(True)
    assert deployed.act() == "PAUSED"
    assert deployed.row.reason == "srm"
    assert not deployed.expose(b"x", "candidate", "x")
    deployed.manager.resume(deployed.id, "the router is mended")
    assert deployed.act() == "HOLDING"
    verified(deployed)


def test_a_unit_that_changes_its_arm_pauses_the_rollout(deployed: Deployment) -> None:
    deployed.request(True, unit="u")
    deployed.request(False, unit="u")
    assert deployed.act() == "PAUSED"
    assert deployed.row.reason == "assignment"


def test_a_signal_pauses_once_and_a_guardrail_rolls_back(tmp_path: Path) -> None:
    metrics = (
        Metric(name="utility", kind="goal", type="bounded_mean"),
        Metric(name="slow", kind="signal", type="bad_event"),
        Metric(name="error", kind="guardrail", type="bad_event"),
    )
    deployed = Deployment(
        tmp_path / "d.sqlite", config(metrics=metrics, steps=(RampStep(share=0.5),), slow_s=1.0)
    )
    slow = GOOD.model_copy(update={"seconds": 2.0})
    deployed.units(200, GOOD, slow)
    assert deployed.act() == "PAUSED"
    assert deployed.row.reason == "signal slow: too often"
    deployed.manager.resume(deployed.id, "seen")
    deployed.units(100, GOOD, slow)
    assert deployed.act() == "HOLDING"
    deployed.units(100, GOOD, ERROR)
    assert deployed.act() == "ROLLED_BACK"
    verified(deployed)


@pytest.mark.parametrize("value", [1e300, -1e300, float("inf"), float("-inf"), float("nan")])
def test_an_impossible_value_is_clipped_or_refused_and_moves_nothing_else(
    tmp_path: Path, value: float
) -> None:
    metrics = (Metric(name="utility", kind="goal", type="bounded_mean", high=0.9),)
    deployed = Deployment(tmp_path / "d.sqlite", config(metrics=metrics))
    deployed.request(True, GOOD.model_copy(update={"speedup": value}))
    deployed.clock.pass_(6)
    deployed.act()
    counts = deployed.manager.evaluate(deployed.id).numbers["counts"]
    assert (counts["clipped"], counts["refused"]) == ((1, 0) if value > 0 else (0, 1))
    assert counts["closed"] == [0, int(value > 0)]


def test_a_clock_that_is_set_back_keeps_the_order_and_the_windows(deployed: Deployment) -> None:
    deployed.request(True)
    deployed.clock.pass_(-3600)
    deployed.request(False)
    times = [event.ts_us for event in deployed.store.events(deployed.id)]
    assert times == sorted(set(times))
    deployed.clock.pass_(3600 + 6)
    deployed.act()
    assert deployed.manager.evaluate(deployed.id).numbers["counts"]["closed"] == [1, 1]


def test_the_shadow_comes_first_and_a_harmless_candidate_goes_on(tmp_path: Path) -> None:
    deployed = Deployment(tmp_path / "d.sqlite", config(shadow_units=200))
    assert deployed.state == "SHADOW"
    assert not deployed.expose(b"u", "candidate", "r")
    for n in range(120):
        better = Outcome(status="verified", speedup=1.0 + (n % 3) / 10, seconds=0.1)
        assert deployed.pair(str(n).encode(), f"s{n}", GOOD, better)
        assert not deployed.pair(b"x", f"s{n}", GOOD, better)
    assert deployed.act() == "RAMPING"
    verified(deployed)


def test_a_candidate_that_fails_in_the_shadow_serves_nobody_ever(tmp_path: Path) -> None:
    deployed = Deployment(tmp_path / "d.sqlite", config(shadow_units=200))
    for n in range(60):
        deployed.pair(str(n).encode(), f"s{n}", GOOD, ERROR)
    assert deployed.act() == "ROLLED_BACK"
    assert deployed.manager.evaluate(deployed.id).numbers["counts"]["exposures"] == [0, 0]


def test_what_version_0_1_paused_since_a_version_changed_is_not_resumed(
    deployed: Deployment,
) -> None:
    deployed.manager.pause(deployed.id, "config_changed: new: model")
    with pytest.raises(UsageError, match="stop it and start another one"):
        deployed.manager.resume(deployed.id, "seen")
    assert deployed.manager.stop(deployed.id, "ended").state == "STOPPED"


def test_two_operators_at_once_move_it_once(deployed: Deployment) -> None:
    other = ABTestManager(deployed.store)
    row = deployed.row
    other.rollback(row.id, "first")
    with pytest.raises(ConflictError, match="no longer RAMPING"):
        deployed.manager._by_hand(row, "promote", "PROMOTED", "operator", "second")
    assert deployed.state == "ROLLED_BACK"
    assert deployed.store.endpoint("kernels").incumbent == "old"
    verified(deployed)


def test_two_controllers_at_once_decide_once(deployed: Deployment) -> None:
    deployed.units(40, candidate=ERROR)
    other = ABTestManager(deployed.store)
    other._caught_up(deployed.id)
    assert deployed.act() == "ROLLED_BACK"
    assert other.act(deployed.id) is None
    verified(deployed)


def test_an_operator_needs_force_to_promote_early_and_it_is_written_down(
    deployed: Deployment,
) -> None:
    with pytest.raises(UsageError, match="--force"):
        deployed.manager.promote(deployed.id, "now")
    deployed.manager.promote(deployed.id, "now", force=True)
    last = deployed.store.audit(deployed.id)[-1]
    assert json.loads(last.evidence)["force"] is True
    assert deployed.store.endpoint("kernels").incumbent == "new"
    verified(deployed)


def test_one_alias_has_one_active_rollout_and_a_final_state_is_final(deployed: Deployment) -> None:
    second = deployed.manager.create(config())
    with pytest.raises(ConflictError, match="another active experiment"):
        deployed.manager.start(second.id)
    deployed.manager.stop(deployed.id, "enough")
    with pytest.raises(ConflictError, match="is over"):
        deployed.manager.resume(deployed.id, "again")
    deployed.manager.start(second.id)
    verified(deployed)


def test_a_new_process_finds_the_same_numbers(deployed: Deployment) -> None:
    deployed.units(42)
    deployed.clock.pass_(10)
    assert deployed.act() == "HOLDING"
    deployed.request(True, None)
    before = deployed.manager.evaluate(deployed.id)
    fresh = ABTestManager(DeploymentStore(deployed.path, clock=deployed.clock, durable=False))
    assert fresh.act(deployed.id) is None
    assert fresh.evaluate(deployed.id) == before
    assert fresh.observe(deployed.id) == deployed.manager.observe(deployed.id)


def test_events_cannot_be_changed_or_deleted(deployed: Deployment) -> None:
    deployed.request(True)
    with sqlite3.connect(deployed.path) as db:
        for statement in ("UPDATE event SET body='{}'", "DELETE FROM event"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(statement)
    db.close()


def test_a_candidate_that_takes_its_server_down_does_not_lose_its_failures(
    deployed: Deployment,
) -> None:
    for number in range(400):
        candidate = bool(number % 2)
        deployed.request(candidate, None if candidate and number % 10 == 1 else GOOD)
    deployed.clock.pass_(deployed.config.answer_within_s + 1)
    assert deployed.act() == "ROLLED_BACK"
    assert deployed.row.reason == "error: too often"
    numbers = deployed.manager.evaluate(deployed.id).numbers
    assert numbers["counts"]["lost"] == [0, 40]
    verified(deployed)


def test_requests_of_processes_that_were_all_killed_are_lost(deployed: Deployment) -> None:
    child = os.fork()
    if child == 0:  # a server that dies between exposure and outcome
        store = DeploymentStore(deployed.path, clock=deployed.clock, durable=False)
        exposed(store, deployed.id, b"u", "candidate", "open")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    again = ABTestManager(DeploymentStore(deployed.path, clock=deployed.clock, durable=False))
    deployed.clock.pass_(deployed.config.answer_within_s + 1)
    again.act(deployed.id)
    numbers = again.evaluate(deployed.id).numbers
    assert (numbers["counts"]["lost"], numbers["bad"]["error"]["bad"]) == ([0, 1], 1)
    assert not ended(again.store, "open", GOOD)
    verified(deployed)


def test_an_observer_does_not_close_a_window_before_an_event_that_is_being_written(
    deployed: Deployment,
) -> None:
    """Two processes: one takes the time for its event, the other looks before it is written."""
    request = deployed.request(True, unit="u")
    deployed.manager.observe(deployed.id)
    ends = deployed.clock.now_us + round(deployed.config.window_s * 1e6)
    deployed.clock.now_us = ends + 1_000
    deployed.manager.observe(deployed.id)
    deployed.clock.now_us = ends - 1_000
    late = Outcome(status="verified", speedup=8.0, seconds=0.1)
    second = deployed.request(True, late, unit="u")
    assert second != request
    deployed.clock.pass_(10)
    deployed.act()
    effect = deployed.manager._caught_up(deployed.id).effects["utility"]
    fresh = Rollout(deployed.config)
    for event in deployed.store.events(deployed.id):
        fresh.read(event)
    fresh.advance(deployed.clock.now_us)
    assert effect == fresh.effects["utility"]


def test_a_database_of_before_opens_and_its_rollout_goes_on(tmp_path: Path) -> None:
    """As version 4 of the tables left it: one rollout is over, one runs with a request open."""
    path = database_4(tmp_path / "d.sqlite")
    clock = Clock()
    clock.pass_(60)
    manager = ABTestManager(DeploymentStore(path, clock=clock))
    over, running = manager.store.experiments()
    assert (over.state, over.reason) == ("ROLLED_BACK", "error: too often")
    assert manager.evaluate(over.id).numbers["bad"]["error"]["of_candidate"] == 20
    counts = manager.evaluate(running.id).numbers["counts"]
    assert (counts["closed"], counts["exposures"]) == ([6, 6], [6, 7])
    assert len(manager.store.audit()) == 8
    assert ended(manager.store, "r53", GOOD)
    with manager.store.transaction() as tx:
        for n in range(48):
            variant = "candidate" if n % 2 else "incumbent"
            assert expose(tx, running.id, str(n).encode(), variant, f"new {n}")
            assert tx.add_outcome(f"new {n}", GOOD.model_dump_json())
    clock.pass_(6)
    moved = manager.act(running.id)
    assert moved is not None
    assert (moved.state, moved.reason) == ("STOPPED", "inconclusive at the horizon")


def schema_of(path: Path) -> list[tuple[str, ...]]:
    """Its tables with their columns, its indexes and triggers."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall()
        found += db.execute(
            'SELECT m.name, p.name, p.type, p."notnull", p.dflt_value, p.pk'
            " FROM sqlite_master m, pragma_table_info(m.name) p"
        ).fetchall()
    return sorted(found, key=repr)


def database_4(path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((Path(__file__).parent / "golden" / "database_4.sql").read_text())
    return path


def test_a_new_database_is_as_one_that_was_brought_up_to_date(tmp_path: Path) -> None:
    for path in (tmp_path / "new.sqlite", database_4(tmp_path / "old.sqlite")):
        DeploymentStore(path).close()
    assert schema_of(tmp_path / "new.sqlite") == schema_of(tmp_path / "old.sqlite")


def test_a_database_whose_events_lie_in_archives_is_left_as_it_is(tmp_path: Path) -> None:
    path = database_4(tmp_path / "d.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO archive VALUES('exp-1', 'exp-1.jsonl', '0', 3)")
    before = schema_of(path)
    with pytest.raises(StorageError, match="delete the rows of its table archive"):
        DeploymentStore(path)
    assert schema_of(path) == before

"""A server's requests are written down in groups, and served whatever the database does."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coding_framework.deployment.controller import Controller, DecidedTraffic
from coding_framework.deployment.live_traffic import LiveTraffic, server_secret
from coding_framework.deployment.manager import ABTestManager
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.store import DeploymentStore
from coding_framework.store.databases import StorageError
from support.replayed import replayed
from support.rollouts import ERROR, GOOD, RampStep, config, prepared

pytestmark = pytest.mark.unit

PATIENCE_S = 120.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, generously: CI's machine is slow."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "deployment.sqlite"
    prepared(DeploymentStore(path)).close()
    return path


@pytest.fixture
def experiment(database: Path) -> str:
    manager = ABTestManager(DeploymentStore(database))
    row = manager.create(config(steps=(RampStep(share=0.5),), window_s=0.05))
    return manager.start(row.id, reason="a test").id


@pytest.fixture
def traffic(database: Path, experiment: str) -> Iterator[LiveTraffic]:
    live = LiveTraffic(database)
    yield live
    live.close()


def served(traffic: LiveTraffic, name: str, of_candidate: Outcome = GOOD) -> str:
    """One request from start to end; the version that answered it."""
    unit = traffic.unit(name)
    now = traffic.expose("kernels", unit, name, traffic.assign("kernels", unit)).result()
    if now.experiment is not None:
        outcome = of_candidate if now.variant == "candidate" else GOOD
        assert traffic.finish(name, outcome).result()
    return now.version


def test_requests_of_many_tasks_are_each_exposed_and_ended_once(
    traffic: LiveTraffic, database: Path, experiment: str
) -> None:
    async def one(number: int) -> None:
        name = f"r{number}"
        unit = traffic.unit(name)
        assignment = traffic.assign("kernels", unit)
        exposed = traffic.expose("kernels", unit, name, assignment)
        assert await asyncio.wrap_future(exposed) == assignment
        assert await asyncio.wrap_future(traffic.finish(name, GOOD))
        assert not await asyncio.wrap_future(traffic.finish(name, ERROR))

    async def all_of_them() -> None:
        await asyncio.gather(*(one(n) for n in range(100)))

    asyncio.run(all_of_them())
    store = DeploymentStore(database)
    kinds = [event.kind for event in store.events(experiment)]
    assert (kinds.count("exposure"), kinds.count("outcome")) == (100, 100)
    assert {served(traffic, f"v{n}") for n in range(20)} == {"old", "new"}


def test_a_decision_reaches_the_servers_and_the_candidate_serves_nobody(
    traffic: LiveTraffic, database: Path, experiment: str
) -> None:
    controller = Controller(database)
    controller.start()
    numbers = iter(range(10_000))

    def over() -> bool:
        served(traffic, f"r{next(numbers)}", ERROR)
        return traffic.assign("kernels", traffic.unit("x")).experiment is None

    until(over)
    store = DeploymentStore(database)
    assert store.experiment(experiment).state == "ROLLED_BACK"
    assert {served(traffic, f"after {n}") for n in range(20)} == {"old"}
    assert replayed(store).difference is None
    controller.close()


def test_a_stale_router_cannot_expose_after_the_end(
    traffic: LiveTraffic, database: Path, experiment: str
) -> None:
    names = (f"u{n}" for n in range(1000))
    name = next(n for n in names if traffic.assign("kernels", traffic.unit(n)).version == "new")
    before = traffic.assign("kernels", traffic.unit(name))
    ABTestManager(DeploymentStore(database)).rollback(experiment, "by hand")
    now = traffic.expose("kernels", traffic.unit(name), name, before).result()
    assert (now.version, now.experiment) == ("old", None)


def test_where_the_database_fails_the_incumbent_serves_and_the_rollout_pauses(
    database: Path, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coding_framework.store.databases.BUSY_MS", 200)
    traffic = LiveTraffic(database)
    unfinished = next(n for n in (f"u{i}" for i in range(99)) if served(traffic, n) == "new")
    unit = traffic.unit("open")
    traffic.expose("kernels", unit, "open", traffic.assign("kernels", unit)).result()
    foreign = sqlite3.connect(database, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")  # another program holds the database
    assert {served(traffic, f"r{n}") for n in range(50)} == {"old"}
    assert "locked" in (traffic.failure or "")
    assert not traffic.finish("open", GOOD).result()  # it waits for the database, not the caller
    foreign.execute("ROLLBACK")
    until(lambda: traffic.failure is None)
    store = DeploymentStore(database)
    row = store.experiment(experiment)
    assert (row.state, row.reason) == ("PAUSED", "storage")
    assert any(event.id == "open:o" for event in store.events(experiment))
    assert served(traffic, unfinished) == "old"
    assert replayed(store).difference is None
    traffic.close()


def test_a_database_that_is_deleted_while_it_is_served_is_noticed(
    database: Path, experiment: str
) -> None:
    traffic = LiveTraffic(database)
    database.unlink()
    assert {served(traffic, f"r{n}") for n in range(20)} == {"old"}
    assert "deleted or replaced" in (traffic.failure or "")
    traffic.close()


@pytest.mark.parametrize(
    ("pragma", "said"),
    [("max_page_count=1", "the disk"), ("query_only=ON", "cannot be written")],  # the present size
)
def test_where_the_database_takes_nothing_more_the_incumbent_serves(
    database: Path, experiment: str, pragma: str, said: str
) -> None:
    traffic = LiveTraffic(database)
    traffic._writing._db.execute(f"PRAGMA {pragma}")
    heard: list[str] = []

    def failed() -> bool:
        name = f"before {time.monotonic_ns()}"
        unit = traffic.unit(name)
        traffic.expose("kernels", unit, name, traffic.assign("kernels", unit)).result()
        heard.extend([traffic.failure] if traffic.failure else [])
        return bool(heard)

    until(failed)
    assert said in heard[0]
    assert {served(traffic, f"r{n}") for n in range(20)} == {"old"}
    if "query" in pragma:
        traffic._writing._db.execute("PRAGMA query_only=OFF")
        until(lambda: traffic.failure is None)
        assert DeploymentStore(database).experiment(experiment).reason == "storage"
    traffic.close()


def test_when_one_controller_ends_another_takes_over(database: Path, experiment: str) -> None:
    one, other = Controller(database), Controller(database)
    assert one.step() == []
    assert one.acts
    assert other.step() == []
    assert not other.acts
    one.close()
    other.step()
    assert other.acts
    other.close()


def test_a_server_process_decides_its_rollouts(database: Path, experiment: str) -> None:
    traffic, store = DecidedTraffic(database), DeploymentStore(database)
    numbers = iter(range(10_000))

    def over() -> bool:
        served(traffic, f"r{next(numbers)}", ERROR)
        return store.experiment(experiment).state == "ROLLED_BACK"

    until(over)
    traffic.close()


def test_all_processes_share_one_secret_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    assert server_secret(path) == server_secret(path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


# --- the database itself --------------------------------------------------------------------------


def test_what_is_no_database_and_what_a_newer_version_wrote_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database " * 100)
    with pytest.raises(StorageError, match="damaged"):
        DeploymentStore(tmp_path / "text")
    newer = tmp_path / "newer.sqlite"
    DeploymentStore(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(StorageError, match="newer version"):
        DeploymentStore(newer)


def test_a_database_in_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be"):
        DeploymentStore(tmp_path / "file" / "d.sqlite")


def test_two_databases_in_one_folder_are_both_decided(tmp_path: Path) -> None:
    for name in ("a", "b"):
        prepared(DeploymentStore(tmp_path / f"{name}.sqlite", durable=False)).close()
    first, second = (Controller(tmp_path / f"{name}.sqlite") for name in ("a", "b"))
    third = Controller(tmp_path / "a.sqlite")
    try:
        for controller in (first, second, third):
            controller.step()
        assert [c.acts for c in (first, second, third)] == [True, True, False]
    finally:
        for controller in (first, second, third):
            controller.close()

"""Who answers, by the server's file and its database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.traffic import open_traffic
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.store.databases import StorageError
from support.serving import config_of

pytestmark = pytest.mark.unit


def test_without_a_database_the_file_says_who_answers(tmp_path: Path) -> None:
    traffic, versions = open_traffic(config_of("http://a", tmp_path))
    assert traffic.assign("kernels", b"u").version == "v1"
    assert versions.get("v1").model == "m"
    with pytest.raises(InfrastructureError, match="v2"):
        versions.get("v2")


def test_a_new_database_learns_what_the_file_says_and_then_decides(tmp_path: Path) -> None:
    database = tmp_path / "deployment.sqlite"
    config = config_of("http://a", tmp_path, database=str(database))
    for _ in range(2):  # a second start finds what the first has left
        traffic, versions = open_traffic(config)
        assert traffic.assign("kernels", traffic.unit("somebody")).version == "v1"
        traffic.close()
    store = DeploymentStore(database)
    DeploymentManager(store).register_version("v2", VersionSpec(model="other"))
    store.close()
    assert versions.get("v2").model == "other"


def test_a_version_is_never_redefined_by_the_file(tmp_path: Path) -> None:
    database = str(tmp_path / "deployment.sqlite")
    traffic, _ = open_traffic(config_of("http://a", tmp_path, database=database))
    traffic.close()
    changed = {"v1": {"model": "another"}}
    with pytest.raises(UsageError, match="v1"):
        open_traffic(config_of("http://a", tmp_path, database=database, versions=changed))


def test_a_server_does_not_start_on_a_damaged_database(tmp_path: Path) -> None:
    database = tmp_path / "deployment.sqlite"
    config = config_of("http://a", tmp_path, database=str(database))
    DeploymentStore(database).close()
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        (size,) = db.execute("PRAGMA page_size").fetchone()
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name='event'").fetchone()
    db.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(StorageError, match="put a backup in its place"):
        open_traffic(config)

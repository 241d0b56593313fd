"""The pages of deployments, over real databases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from coding_framework.deployment.ab_testing import RampStep
from coding_framework.deployment.store import DeploymentStore
from coding_framework.store.databases import StorageError
from support.rollouts import ERROR, GOOD, Clock, Deployment, config
from support.viewed import Viewed

pytestmark = pytest.mark.integration
HOLDING = (RampStep(share=0.5),)


@pytest.fixture
def deployed(tmp_path: Path) -> Deployment:
    path, clock = tmp_path / "deployment/deployment.sqlite", Clock(time.time_ns() // 1000)
    return Deployment(path, config(steps=HOLDING), clock)


def viewed_of(deployed: Deployment, tmp_path: Path) -> Viewed:
    return Viewed(deployed.path.parent, index=tmp_path / "index")


def series_of(chart: dict[str, object]) -> dict[str, list[float]]:
    series = chart["series"]
    assert isinstance(series, list)
    return {line["name"]: line["values"] for line in series}


def test_the_list_tells_aliases_rollouts_and_versions(deployed: Deployment, tmp_path: Path) -> None:
    viewed = viewed_of(deployed, tmp_path)
    page = viewed.page("/deploy")
    assert f'href="/deploy/experiments/{deployed.id}"' in page
    assert "holding" in page
    database = viewed.data("/deploy")["databases"][0]
    assert [e["incumbent"] for e in database["endpoints"]] == ["old"]
    assert 'href="/deploy"' in viewed.page("/"), "the list of runs leads there"


def test_a_rollout_is_shown_with_the_figures_of_its_log(
    deployed: Deployment, tmp_path: Path
) -> None:
    viewed = viewed_of(deployed, tmp_path)
    address = f"/deploy/experiments/{deployed.id}"
    assert "closed units, 0 of 1000 so far" in viewed.page(address)
    deployed.units(250)
    deployed.request(False)  # the page knows the time by the log
    deployed.act()
    page = viewed.page(address)
    told = viewed.data(address)["numbers"]
    assert told == deployed.manager.evaluate(deployed.id).numbers, "as the controller finds them"
    assert "50%" in page
    assert "It waits for closed units, 250 of 1000 so far" in page
    assert f"cuda-rl deploy pause kernels --database {deployed.path}" in page


def test_intervals_and_e_values_are_drawn(deployed: Deployment, tmp_path: Path) -> None:
    deployed.units(30, GOOD, ERROR)
    deployed.units(600)
    viewed = viewed_of(deployed, tmp_path)
    assert deployed.act() == "ROLLED_BACK"
    found = {c["id"]: c for c in viewed.data(f"/deploy/experiments/{deployed.id}/charts")}
    errors = series_of(found["e-error"])
    assert errors["e-value"][-1] > errors["alarm"][-1] == pytest.approx(5 / 0.05)  # five guardrails
    utility = series_of(found["metric-utility"])
    assert utility["low"][-1] < utility["candidate less incumbent"][-1] < utility["high"][-1]
    page = viewed.page(f"/deploy/experiments/{deployed.id}")
    assert "error: too often" in page
    assert "It is over" in page


def test_a_page_that_is_asked_for_again_reads_what_is_new(
    deployed: Deployment, tmp_path: Path
) -> None:
    viewed = viewed_of(deployed, tmp_path)
    address = f"/deploy/experiments/{deployed.id}"
    for count in (10, 250, 40):
        deployed.units(count)
        deployed.request(True)
        told = viewed.data(address)["numbers"]
        assert told == deployed.manager.evaluate(deployed.id).numbers


def test_nothing_is_written_beside_a_database(deployed: Deployment, tmp_path: Path) -> None:
    deployed.units(20)
    deployed.store.close()
    before = {p.name: p.read_bytes() for p in deployed.path.parent.iterdir()}
    assert list(before) == ["deployment.sqlite"]
    viewed = viewed_of(deployed, tmp_path)
    viewed.page("/deploy")
    viewed.page(f"/deploy/experiments/{deployed.id}")
    assert {p.name: p.read_bytes() for p in deployed.path.parent.iterdir()} == before


def test_a_database_that_is_opened_to_read_takes_no_event(deployed: Deployment) -> None:
    store = DeploymentStore(deployed.path, read_only=True)
    with pytest.raises(StorageError, match="cannot be written"), store.transaction() as tx:
        tx.add_event("x", "note", "{}")
    store.close()


def test_a_broken_or_foreign_database_is_told_and_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    (folder / "deployment.sqlite").write_bytes(b"no database" * 100)
    viewed = Viewed(folder, index=tmp_path / "index")
    assert "or damaged" in viewed.page("/deploy")
    assert viewed.client.get("/deploy/experiments/exp-1").status_code == 400
    assert viewed.client.get("/deploy/experiments/exp-1/events").status_code == 400
    viewed.page("/")


def test_names_of_operators_and_versions_are_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    deployed = Deployment(tmp_path / "d/deployment.sqlite", config(steps=HOLDING))
    deployed.manager.pause(deployed.id, reason=evil, actor=evil)
    viewed = viewed_of(deployed, tmp_path)
    for address in ("/deploy", f"/deploy/experiments/{deployed.id}"):
        assert evil not in viewed.page(address)


def test_an_unknown_rollout_is_not_there(deployed: Deployment, tmp_path: Path) -> None:
    viewed = viewed_of(deployed, tmp_path)
    assert viewed.client.get("/deploy/experiments/..%2fx").status_code == 404
    assert viewed.client.get("/api/deploy/experiments/nope/charts").status_code == 404

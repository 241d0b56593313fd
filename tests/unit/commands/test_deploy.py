"""`cuda-rl deploy` as an operator uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.cli import main
from coding_framework.deployment.store import DeploymentStore, VersionRow
from coding_framework.evaluation.samples import SampleRecord

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deploy(*args: str) -> int:
    return main(["deploy", *args])


def prepared() -> None:
    assert deploy("register", "v1", "--model", "m1") == 0
    assert deploy("register", "v2", "--model", "m2") == 0
    assert deploy("create", "kernels", "v1") == 0


def started(*flags: str, **settings: float) -> int:
    Path("settings.yaml").write_text(json.dumps(settings | {"mde": 0.03}))
    config = ("--config", "settings.yaml")
    return deploy("start", "kernels", "v2", "--reason", "a test", *config, *flags)


def test_nothing_is_made_where_there_is_no_database(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy("status") == 2
    assert "no deployment database" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_a_rollout_from_registration_to_rollback_and_its_history(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared()
    assert started("--without-evaluation", shadow_units=0, window_s=60) == 0
    capsys.readouterr()
    assert deploy("status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["incumbent"], status["rollout"]["state"]) == ("v1", "RAMPING")
    assert deploy("pause", "kernels", "--reason", "lunch") == 0
    assert deploy("resume", "kernels", "--reason", "back") == 0
    assert deploy("rollback", "kernels", "--reason", "complaints") == 0
    assert deploy("status") == 0
    assert "ROLLED_BACK (complaints)" in capsys.readouterr().out
    assert deploy("history", "kernels", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    actions = [line["action"] for line in lines]
    assert actions == ["deploy", "create", "gate", "start", "pause", "resume", "rollback"]


def test_after_a_promotion_one_command_puts_the_previous_version_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared()
    assert started("--without-evaluation") == 0
    assert deploy("promote", "kernels", "--reason", "now") == 2
    assert "--force" in capsys.readouterr().err
    assert deploy("promote", "kernels", "--reason", "now", "--force") == 0
    assert deploy("rollback", "kernels", "--reason", "slow") == 0
    assert "kernels stands for v1" in capsys.readouterr().out


def samples(solved: int) -> str:
    """An evaluation of 40 tasks, of which so many were solved."""
    rows = [SampleRecord(task=f"t{n}", status="x", correct=n < solved) for n in range(40)]
    return json.dumps([row.model_dump(mode="json") for row in rows])


@pytest.mark.parametrize(("solved", "status"), [(30, 0), (5, 2)])
def test_a_candidate_that_is_worse_in_its_evaluation_is_not_tried_on_users(
    folder: Path, solved: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared()
    assert started() == 2
    assert "has no evaluation" in capsys.readouterr().err
    store = DeploymentStore(folder / "deployment" / "deployment.sqlite")
    with store.transaction() as tx:
        tx.set_evaluation("v1", samples(28))
        tx.set_evaluation("v2", samples(solved))
    assert started() == status
    if status:
        assert "worse in its evaluation: pass@1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("start", "kernels", "v9", "--reason", "x"), "there is no version 'v9'"),
        (("start", "other", "v2", "--reason", "x"), "there is no endpoint 'other'"),
        (("start", "kernels", "v1", "--reason", "x"), "incumbent and candidate are both v1"),
        (("start", "kernels", "v2"), "--reason"),
        (("start", "kernels", "v2", "--reason", "x", "--config", "none"), "none cannot be read"),
        (("start", "kernels", "v2", "--reason", "x", "--config", "wrong"), "there is no setting"),
        (("create", "kernels", "v2"), "stands for a version already"),
        (("register", "v1", "--model", "else"), "with another content"),
        (("register", "v3"), "--model is missing"),
        (("pause", "kernels", "--reason", "x"), "has no active rollout"),
        (("rollback", "kernels", "--reason", "x"), "no previous version"),
        (("stop", "kernels", "--reason", " "), "is empty: say why"),
        (("status", "--database", "."), "is a folder"),
    ],
)
def test_each_mistake_is_one_sentence_and_changes_nothing(
    folder: Path, command: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong").write_text("shadow_unit: 3\n")
    prepared()
    assert deploy(*command) == (3 if "." in command else 2)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_steps_and_metrics_come_from_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rollout.yaml").write_text(
        "horizon_units: 300\nshadow_units: 0\nsteps:\n  - {share: 0.5, min_dwell_s: 0}\n"
    )
    prepared()
    settings = ("--config", "rollout.yaml", "--without-evaluation")
    assert deploy("start", "kernels", "v2", "--reason", "a test", *settings) == 0
    assert "HOLDING, 300 units" in capsys.readouterr().out


def test_a_version_is_named_once(folder: Path) -> None:
    prepared()
    store = DeploymentStore(folder / "deployment" / "deployment.sqlite")
    assert [row.id for row in store.versions()] == ["v1", "v2"]
    assert isinstance(store.version("v1"), VersionRow)
    assert deploy("register", "v4", "--model", "m1") == 2  # the same content
    assert deploy("register", "v1", "--model", "m1") == 0  # the same again


def test_a_rollback_to_an_unknown_version_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared()
    assert started("--without-evaluation", shadow_units=0) == 0
    assert deploy("rollback", "kernels", "--reason", "x", "--to", "v7") == 2
    assert "there is no version 'v7'" in capsys.readouterr().err
    assert deploy("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rollout"]["state"] == "RAMPING"

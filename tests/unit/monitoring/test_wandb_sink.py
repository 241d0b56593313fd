"""Reporting to wandb: optional, offline without a key, and never a reason to end the work."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from coding_framework.monitoring.wandb_sink import WandbSink, flat_numbers, wandb_wanted

pytestmark = pytest.mark.unit


class Service:
    """wandb's module as far as it is used, noting what it is told."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.inits: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.ended: list[int] = []
        self.summary: dict[str, float] = {}
        self.tables: list[tuple[list[str], list[list[Any]]]] = []
        self.files: list[tuple[str, str]] = []

    def Settings(self, **options: Any) -> dict[str, Any]:  # noqa: N802
        return options

    def init(self, **options: Any) -> Any:
        self._may_fail("init")
        self.inits.append(options)
        return SimpleNamespace(
            log=self._log, log_artifact=self._file, summary=self.summary,
            finish=lambda exit_code: self.ended.append(exit_code),
        )  # fmt: skip

    def Table(self, columns: list[str], data: list[list[Any]]) -> str:  # noqa: N802
        self.tables.append((columns, data))
        return "table"

    def _file(self, path: str, name: str, type: str) -> None:
        self._may_fail("file")
        self.files.append((name, type))

    def _log(self, values: dict[str, float], step: int = 0) -> None:
        self._may_fail("log")
        self.logged.append((step, values))

    def _may_fail(self, what: str) -> None:
        if what == self.fails:
            raise ConnectionError("the network is gone")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def report(monkeypatch: pytest.MonkeyPatch, service: Service, folder: Path, **how: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", service)
    with WandbSink("P", folder, {"a": 1}, **{"wanted": True, **how}) as sink:
        sink.log(1, {"reward": 0.5, "parts": {"x": 1, "none": None}, "name": "n", "ok": True})


def test_it_is_on_where_a_key_is_set_or_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [wandb_wanted(given) for given in (None, True, False)] == [False, True, False]
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert [wandb_wanted(given) for given in (None, True, False)] == [True, True, False]


def test_a_rerun_of_a_folder_goes_on_with_its_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service()
    report(monkeypatch, service, tmp_path)
    report(monkeypatch, service, tmp_path)
    first, second = service.inits
    assert first["id"] == second["id"]
    assert (first["mode"], first["resume"], first["project"]) == ("offline", "allow", "P")
    assert service.logged[0] == (1, {"reward": 0.5, "parts/x": 1.0})
    assert service.ended == [0, 0]


def test_not_wanted_it_is_not_even_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service()
    report(monkeypatch, service, tmp_path, wanted=False)
    assert service.inits == []


@pytest.mark.parametrize("fails", ["init", "log"])
def test_a_service_that_fails_is_warned_of_once_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str
) -> None:
    with capture_logs() as said:
        report(monkeypatch, Service(fails), tmp_path)
    assert [line["event"] for line in said] == ["wandb_left_out"]
    assert "the network is gone" in said[0]["reason"]


def test_nested_numbers_are_named_by_their_path() -> None:
    assert dict(flat_numbers({"a": {"b": {"c": 2}}, "d": [1], "e": 1.5})) == {"a/b/c": 2, "e": 1.5}


def test_an_end_is_told_as_numbers_a_table_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", service)
    with WandbSink("P", tmp_path, {}, wanted=True) as sink:
        sink.summarise({"eval": {"held-out:2": {"pass@1": 0.5}}})
        sink.table("samples", [{"task": "a", "speedup": None}, {"task": "b", "speedup": 2.0}])
        sink.table("none", [])
        sink.file(tmp_path / "report.html", "report")
    assert service.summary == {"eval/held-out:2/pass@1": 0.5}
    assert service.tables == [(["task", "speedup"], [["a", None], ["b", 2.0]])]
    assert service.files == [("report.html", "report")]


def test_a_file_that_cannot_be_sent_ends_the_reporting_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service(fails="file")
    monkeypatch.setitem(sys.modules, "wandb", service)
    with capture_logs() as logs, WandbSink("P", tmp_path, {}, wanted=True) as sink:
        sink.file(tmp_path / "report.html", "report")
        sink.summarise({"a": 1.0})
    assert [entry["event"] for entry in logs] == ["wandb_left_out"]
    assert service.summary == {}

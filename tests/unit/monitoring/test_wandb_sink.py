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

    def Settings(self, **options: Any) -> dict[str, Any]:  # noqa: N802
        return options

    def init(self, **options: Any) -> Any:
        self._may_fail("init")
        self.inits.append(options)
        return SimpleNamespace(log=self._log, finish=lambda exit_code: self.ended.append(exit_code))

    def _log(self, values: dict[str, float], step: int) -> None:
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

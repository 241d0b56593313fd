"""Reporting to wandb: optional, offline without a key, and never a reason to end the work."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from coding_framework.monitoring import wandb_sink
from coding_framework.monitoring.wandb_sink import (
    SFT_PROJECT,
    WandbSink,
    flat_numbers,
    named_numbers,
    system_numbers,
    wandb_wanted,
)
from coding_framework.store.records import Measures, StepRecord, TierRates
from coding_framework.store.run_status import (
    Alert,
    GPUSample,
    RunIdentity,
    SystemSample,
    write_identity,
)

pytestmark = pytest.mark.unit


class Service:
    """wandb's module as far as it is used, noting what it is told."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.inits: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.metrics: list[tuple[str, str | None]] = []
        self.alerts: list[tuple[str, str]] = []
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
            define_metric=lambda name, step_metric=None: self.metrics.append((name, step_metric)),
            alert=lambda title, text: self.alerts.append((title, text)),
            finish=lambda exit_code: self.ended.append(exit_code),
        )  # fmt: skip

    def Table(self, columns: list[str], data: list[list[Any]]) -> str:  # noqa: N802
        self.tables.append((columns, data))
        return "table"

    def _file(self, path: str, name: str, type: str) -> None:
        self._may_fail("file")
        self.files.append((name, type))

    def _log(self, values: dict[str, Any]) -> None:
        self._may_fail("log")
        self.logged.append(values)

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
    assert not sink._wanted or sink.wait(60.0)


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
    assert service.logged[0] == {"step": 1, "reward": 0.5, "parts/x": 1.0}
    assert service.metrics[:2] == [("step", None), ("*", "step")]
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
        sink.table("made later", lambda: [{"a": 1}])
        sink.file(tmp_path / "report.html", "report")
    assert sink.wait(60.0)
    assert service.summary == {"eval/held-out:2/pass@1": 0.5}
    assert service.tables == [(["task", "speedup"], [["a", None], ["b", 2.0]]), (["a"], [[1]])]
    assert service.files == [("report.html", "report")]


def test_a_file_that_cannot_be_sent_ends_the_reporting_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service(fails="file")
    monkeypatch.setitem(sys.modules, "wandb", service)
    with capture_logs() as logs:
        with WandbSink("P", tmp_path, {}, wanted=True) as sink:
            sink.file(tmp_path / "report.html", "report")
            sink.summarise({"a": 1.0})
        assert sink.wait(60.0)
    assert [entry["event"] for entry in logs] == ["wandb_left_out"]
    assert service.summary == {}


def test_a_service_that_hangs_holds_nothing_up_and_what_it_did_not_take_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    released, service = threading.Event(), Service()
    monkeypatch.setattr(service, "init", lambda **_: released.wait(600))
    monkeypatch.setitem(sys.modules, "wandb", service)
    started = time.monotonic()
    try:
        with capture_logs() as logs, WandbSink("P", tmp_path, {}, wanted=True) as sink:
            for step in range(1500):
                sink.log(step, {"reward": 0.5})
        assert time.monotonic() - started < 60.0
        assert sink.dropped == 501, "one made room for the end"
        assert [entry["event"] for entry in logs] == ["wandb_too_slow"]
        assert not sink.wait(0.0)
    finally:
        released.set()
        assert sink.wait(60.0)
        wandb_sink._unfinished.clear()


def test_a_call_that_hangs_does_not_keep_the_work_from_ending(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    released, service = threading.Event(), Service()
    monkeypatch.setattr(service, "_log", lambda _: released.wait(600))
    monkeypatch.setitem(sys.modules, "wandb", service)
    started = time.monotonic()
    try:
        with WandbSink("P", tmp_path, {}, wanted=True) as sink:
            sink.log(1, {"reward": 0.5})
        assert time.monotonic() - started < 60.0
    finally:
        released.set()
        assert sink.wait(60.0)
        wandb_sink._unfinished.clear()
    assert service.ended == [0], "the rest was sent afterwards"


def test_stages_of_a_run_share_its_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    service, run = Service(), tmp_path / "my-run"
    monkeypatch.setitem(sys.modules, "wandb", service)
    write_identity(run, RunIdentity(kind="whole"))
    for folder in (run / "sft", tmp_path / "alone"):
        with WandbSink(SFT_PROJECT, folder, {}, wanted=True) as sink:
            pass
        assert sink.wait(60.0)
    told = [(i["project"], i["group"], i["job_type"]) for i in service.inits]
    assert told == [
        ("CUDA-SFT-Training", "my-run", "sft"),
        ("CUDA-SFT-Training", "alone", "sft"),
    ]


def test_what_a_run_noticed_is_an_alert(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", service)
    with WandbSink("P", tmp_path, {}, wanted=True) as sink:
        sink.alert(Alert(t=1.0, rule="cheating", text="3 cheats", advice="look"))
    assert sink.wait(60.0)
    assert service.alerts == [("cheating", "3 cheats: look")]


def test_a_steps_numbers_have_the_names_of_the_documents() -> None:
    measures = Measures(
        reward_parts={"correctness": 0.5},
        tiers={"1": TierRates(turns=2, compile_rate=1.0, correct_rate=0.25)},
        verdict_wait_s={"p95": 3.0},
    )
    record = StepRecord(step=7, measures=measures, times={"rollout_s": 2.0})
    found = named_numbers(record.model_dump(mode="json"))
    assert found["reward/parts/correctness"] == 0.5
    assert found["tiers/1/correct_rate"] == 0.25
    assert found["verdict_wait_s/p95"] == 3.0
    assert found["times/rollout_s"] == 2.0
    assert not [name for name in found if name.startswith("measures")]


def test_a_sample_of_the_machine_is_named_by_gpu() -> None:
    sample = SystemSample(t=1.0, cpu=(50.0, 100.0), gpus=(GPUSample(index=0, util=40.0),))
    found = dict(flat_numbers(system_numbers(sample)))
    assert found["system/gpu.0.util"] == 40.0
    assert found["system/cpu"] == 75.0
    assert system_numbers(None) == {}

"""What wandb is told of rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coding_framework.deployment import rollout_reports
from coding_framework.deployment.controller import Controller
from coding_framework.monitoring.wandb_sink import named_numbers
from support.rollouts import ERROR, Deployment

pytestmark = pytest.mark.unit


class Sink:
    """A sink that keeps what it is told."""

    made: list[Sink]

    def __init__(
        self, project: str, folder: Path, config: Any, *, wanted: bool, group: str
    ) -> None:
        self.project, self.folder, self.group = project, folder, group
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.alerts: list[str] = []
        self.summary: dict[str, Any] = {}
        self.ended = False
        Sink.made.append(self)

    def __enter__(self) -> Sink:
        return self

    def log(self, step: int, values: Any) -> None:
        self.logged.append((step, named_numbers(values)))

    def alert(self, alert: Any) -> None:
        self.alerts.append(alert.rule)

    def summarise(self, values: Any) -> None:
        self.summary = values

    def end(self, *, wait_s: float) -> None:
        self.ended = True


@pytest.fixture
def sinks(monkeypatch: pytest.MonkeyPatch) -> list[Sink]:
    Sink.made = []
    monkeypatch.setattr(rollout_reports, "WandbSink", Sink)
    return Sink.made


def test_a_rollout_is_told_over_its_units_until_its_end(tmp_path: Path, sinks: list[Sink]) -> None:
    deployed = Deployment(tmp_path / "deployment.sqlite")
    controller = Controller(deployed.path, wandb=True)
    controller._store._clock = deployed.clock
    controller.step()
    controller.notice()
    deployed.units(250)
    controller.step()
    controller.notice()
    controller.notice()
    (sink,) = sinks
    assert (sink.project, sink.group) == ("CUDA-Deployment", "kernels")
    assert sink.folder == tmp_path / "wandb" / deployed.id
    steps = [step for step, _ in sink.logged]
    assert steps == sorted(set(steps)), "what has not changed is not told again"
    last = sink.logged[-1][1]
    assert last["experiment/counts/closed/candidate"] == 125
    assert last["experiment/utility/low"] <= last["experiment/utility/estimate"]
    assert "experiment/error/log_e" in last
    deployed.units(60, candidate=ERROR)
    controller.step()
    controller.notice()
    assert (sink.alerts[-1], sink.summary["promoted"], sink.ended) == ("rolled_back", False, True)
    controller.close()


def test_a_process_that_does_not_decide_tells_nothing(tmp_path: Path, sinks: list[Sink]) -> None:
    deployed = Deployment(tmp_path / "deployment.sqlite")
    first, second = Controller(deployed.path), Controller(deployed.path, wandb=True)
    for controller in (first, second):
        controller._store._clock = deployed.clock
        controller.step()
    second.notice()
    assert not sinks
    first.close()
    second.step()
    second.notice()
    assert len(sinks) == 1
    second.close()
    assert sinks[0].ended

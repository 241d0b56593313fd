"""Tells wandb how rollouts stand: a run of its project for each, over the units that were seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coding_framework.deployment.ab_testing import ABTestConfig
from coding_framework.deployment.manager import Evaluation
from coding_framework.deployment.store import ExperimentRow
from coding_framework.monitoring.wandb_sink import DEPLOYMENT_PROJECT, WandbSink
from coding_framework.store.run_status import Alert

NUMBERS = ("counts", "shadow_pairs", "srm_p")


class RolloutReports:
    """The reports of one process, which decides; another one that takes over goes on with them."""

    def __init__(self, folder: Path, *, wanted: bool) -> None:
        """folder: of the database; each rollout has one below it, with what wandb keeps offline."""
        self._folder, self._wanted = folder / "wandb", wanted
        self._open: dict[str, _Report] = {}

    def tell(self, row: ExperimentRow, config: ABTestConfig, found: Evaluation | None) -> None:
        """How a rollout stands; found: None when it is over."""
        if not self._wanted:
            return
        report = self._open.get(row.id)
        if report is None and found is not None:
            report = self._open[row.id] = _Report(self._folder / row.id, row, config)
        if report is not None:
            report.tell(row, found)
            if found is None:
                self._open.pop(row.id).close()

    def close(self) -> None:
        for report in self._open.values():
            report.close()
        self._open.clear()


class _Report:
    def __init__(self, folder: Path, row: ExperimentRow, config: ABTestConfig) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._sink = WandbSink(
            DEPLOYMENT_PROJECT, folder, config.model_dump(mode="json"), wanted=True, group=row.alias
        )
        self._sink.__enter__()
        self._stood = (row.state, row.step)
        self._told: Mapping[str, Any] = {}

    def tell(self, row: ExperimentRow, found: Evaluation | None) -> None:
        if (row.state, row.step) != self._stood:
            text = f"{row.alias}: step {row.step}, {row.enrolment:.0%} of the units enrolled"
            reason = row.reason or "no reason was given"
            self._sink.alert(Alert(t=time.time(), rule=row.state.lower(), text=text, advice=reason))
            self._stood = (row.state, row.step)
        if found is None:
            self._sink.summarise({"promoted": row.state == "PROMOTED", "step": row.step})
            return
        numbers = found.numbers
        values = {name: numbers[name] for name in NUMBERS} | numbers["estimates"] | numbers["bad"]
        values |= {"enrolment": row.enrolment, "ramp_step": row.step}
        if values != self._told:
            seen = sum(numbers["counts"]["closed"]) + numbers["shadow_pairs"]
            self._sink.log(seen, {"experiment": _by_arm(values)})
            self._told = values

    def close(self) -> None:
        self._sink.end(wait_s=0.0)


def _by_arm(values: Mapping[str, Any]) -> dict[str, Any]:
    """With the pairs (of incumbent and candidate) by name."""
    return {
        name: _by_arm(value)
        if isinstance(value, Mapping)
        else dict(zip(("incumbent", "candidate"), value, strict=True))
        if isinstance(value, list | tuple)
        else value
        for name, value in values.items()
    }

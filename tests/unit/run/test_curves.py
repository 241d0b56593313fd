"""The report of a whole run has the viewer's charts of its trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coding_framework.evaluation.report import ReportData, render
from coding_framework.run.curves import training_curves
from coding_framework.store.folder import RunFolder
from coding_framework.store.records import Measures, StepRecord, TierRates
from coding_framework.store.training_log import write_steps

pytestmark = pytest.mark.unit


def test_the_trainings_of_a_run_are_drawn_in_its_report(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.sft.root.mkdir()
    lines = [{"step": i, "loss": 3.0 / i, "gradient_norm": 1.0} for i in range(1, 5)]
    lines.append({"epoch": 1.0, "step": 4, "held_out_loss": 0.5, "seconds": 1.0})
    run.sft.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.rl.root.mkdir()
    tiers = {"0": TierRates(turns=4, compile_rate=0.75, correct_rate=0.5)}
    steps = [
        StepRecord(
            step=i,
            solved_rate=0.1 * i,
            solved_error=0.05,
            reward_mean=0.2 * i,
            measures=Measures(tiers=tiers),
        )
        for i in range(1, 5)
    ]
    write_steps(run.rl.steps, steps)
    curves = dict(training_curves(tmp_path))
    assert list(curves) == [
        "Solved conversations", "Reward", "Correct, by tier", "SFT: loss",
        "SFT: held-out loss and score",
    ]  # fmt: skip
    assert curves["SFT: loss"].count("<polyline") == 1
    assert curves["Solved conversations"].count("<polygon") == 1
    assert curves["SFT: held-out loss and score"] == "held-out loss: 0.5 (one measurement)"
    page = render(ReportData(title="t", lead="l", curves=tuple(curves.items())))
    assert page.count("<polyline") == 4
    assert "&lt;svg" not in page


def test_a_run_without_training_has_no_curve(tmp_path: Path) -> None:
    assert training_curves(tmp_path) == ()

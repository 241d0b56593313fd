"""The report of a whole run goes to wandb where its trainings report there."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.run import quickstart
from coding_framework.run.recipe import WholeRun
from coding_framework.run.stages import send_report

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("wanted", [True, False])
def test_the_report_is_sent_where_wandb_is_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: bool
) -> None:
    sent, ended = [], threading.Event()

    def begin(**options: Any) -> SimpleNamespace:
        return SimpleNamespace(
            define_metric=lambda *_, **__: None,
            log_artifact=lambda path, name, type: sent.append((options["project"], name, type)),
            finish=lambda exit_code: ended.set(),
        )

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    fake = SimpleNamespace(init=begin, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    recipe = quickstart.SMOKE.model_copy(update={"rl": {"wandb": wanted}, "sft": {}})
    send_report(WholeRun(title="T", recipe=recipe, folder=tmp_path, base_model="m"), {})
    assert not wanted or ended.wait(60.0)
    assert sent == [("CUDA-Evaluation", "report.html", "report")] * wanted

"""SFT is looked at by the prompts that it teaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coding_framework.agents.prompts import TAUGHT_PROMPTS
from coding_framework.run import model_folder
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.model_folder import fine_tune
from coding_framework.training.sft_config import SFTConfig
from coding_framework.wiring import JudgeSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("named", [{}, {"prompts": "v2"}])
def test_the_evaluations_of_sft_ask_by_what_is_learnt(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, Any]
) -> None:
    asked: list[str | None] = []

    def roles(_: object, __: object, options: EvalOptions, *more: object) -> None:
        asked.append(options.prompts)

    monkeypatch.setattr(model_folder, "_fine_tune_roles", roles)
    config = SFTConfig.model_validate({"per_role": True, **named})
    fine_tune(config, "starter", EvalOptions(), JudgeSettings(), resolve=Path)
    assert asked == [named.get("prompts", TAUGHT_PROMPTS)]


def test_sft_teaches_v3_and_on_a_cpu_the_short_prompts() -> None:
    assert SFTConfig().prompts == "v3"
    assert SFTConfig.cpu().prompts == "v1"

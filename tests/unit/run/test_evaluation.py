"""What makes two evaluations the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.eval_run import EvalIdentity
from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.eval_speakers import Speaker
from coding_framework.run.evaluation import EvalPlan, _identity
from coding_framework.store.folder import require_same_run
from coding_framework.wiring import JudgeSettings

pytestmark = pytest.mark.unit


def identity(baseline: str, backend: str) -> EvalIdentity:
    speaker = Speaker(
        name="m", digest="d", prompts=None, answer_tokens=None, prompt_tokens=None, wanted=()
    )
    options = EvalOptions.model_validate({"baseline": baseline})
    plan = EvalPlan(())
    return _identity(plan, speaker, options, JudgeSettings.model_validate({"backend": backend}))


def test_verdicts_without_times_of_naive_kernels_serve_no_report_over_them() -> None:
    begun = identity("eager", "cuda").model_dump(mode="json")
    require_same_run(Path("run"), begun, identity("compiled", "cuda").model_dump(mode="json"))
    with pytest.raises(UsageError, match="baseline was None and is 'naive' now"):
        require_same_run(Path("run"), begun, identity("naive", "cuda").model_dump(mode="json"))


def test_on_the_emulator_and_in_runs_of_before_any_baseline_goes_on() -> None:
    begun = identity("eager", "emulator").model_dump(mode="json")
    require_same_run(Path("run"), begun, identity("naive", "emulator").model_dump(mode="json"))
    del begun["baseline"]
    require_same_run(Path("run"), begun, identity("eager", "emulator").model_dump(mode="json"))

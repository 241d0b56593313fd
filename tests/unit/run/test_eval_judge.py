"""What an evaluation asks of its judge, here and on a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coding_framework.run import evaluation
from coding_framework.run.eval_options import EvalOptions
from coding_framework.training.verl import ray_cluster, ray_judge
from coding_framework.wiring import JudgeSettings, make_ray_judge

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("baseline", ["eager", "naive"])
@pytest.mark.parametrize("ray", [None, "local"])
def test_naive_kernels_are_timed_for_their_own_baseline_alone(
    baseline: str, ray: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def made(*_: object, time_naive: bool, **__: object) -> None:
        seen.append(time_naive)

    monkeypatch.setattr(evaluation, "make_judge", made)
    monkeypatch.setattr(evaluation, "make_ray_judge", made)
    options = EvalOptions(baseline=baseline, ray=ray)
    plan: Any = SimpleNamespace(suites=[])
    evaluation._judge(plan, options, JudgeSettings())
    assert seen == [baseline == "naive"]


@pytest.mark.parametrize("resource", ["judge", None])
def test_judges_of_a_cluster_are_told_it_and_are_where_nodes_judge_alone(
    resource: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(ray_cluster, "connect", lambda address: False)
    monkeypatch.setattr(ray_cluster, "has_resource", lambda name: name == resource)
    monkeypatch.setattr(
        ray_judge, "RayJudgePool", lambda factory, arguments, **how: told.append(arguments | how)
    )
    make_ray_judge(JudgeSettings(backend="cuda"), "local", time_naive=False)
    assert [(found["time_naive"], found["resource"]) for found in told] == [(False, resource)]

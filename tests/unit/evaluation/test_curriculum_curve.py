"""The progression of a curriculum as a picture."""

from __future__ import annotations

import pytest

from coding_framework.data.curriculum_manager import (
    CurriculumManager,
    CurriculumTier,
    Outcome,
    TierCriteria,
)
from coding_framework.data.registry import find_task
from coding_framework.evaluation.curriculum_curve import curriculum_curve
from coding_framework.evaluation.report import ReportData, render

pytestmark = pytest.mark.unit


def _progressed() -> CurriculumManager:
    """Advances after 20 good episodes of tier a, falls back after 80 of 110 bad ones of both."""
    criteria = TierCriteria(min_compile_rate=0.5, min_success_rate=0.5, min_episodes=10)
    tiers = [
        CurriculumTier(name=name, task_tiers=(tier,), criteria=criteria)
        for tier, name in enumerate("ab")
    ]
    base = find_task("relu")
    tasks = [base.model_copy(update={"name": f"t{t}", "tier": t}) for t in (0, 1)]
    manager = CurriculumManager(tasks, tiers)
    for good in [True] * 20 + [False] * 110:
        for tier in (0, 1):
            outcome = Outcome(task=f"t{tier}", compiled=good, correct=good)
            manager.record_outcome(outcome, task_tier=tier)
    return manager


def test_the_tier_steps_up_on_an_advance_and_down_on_a_fallback() -> None:
    manager = _progressed()
    assert {w.decision for w in manager.progression} == {"advance", "fall_back", "stay"}
    curve = curriculum_curve(manager.progression, manager.tiers)
    heights = [step.values["tier"] for step in curve.steps]
    assert heights[0] == 0.0
    assert 1.0 in heights
    assert heights[-1] == 0.0
    assert curve.title == "Curriculum: a to b"


def test_the_report_draws_it() -> None:
    manager = _progressed()
    curve = curriculum_curve(manager.progression, manager.tiers)
    page = render(ReportData(title="t", lead="l", curves=(curve,)))
    assert "Curriculum: a to b" in page
    assert page.count("<polyline") == 3

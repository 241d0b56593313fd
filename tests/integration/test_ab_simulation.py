"""The simulation that the statistics were measured with decides as the manager and its store do."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.through_store import compare

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from ab_simulation import BROKEN, SCENARIOS, Rollouts, Scenario, pooled_ramp, steady

pytestmark = pytest.mark.integration

WINS = Scenario("+20 points", steady(0.3), lift=0.2)
HARMS = Scenario("-20 points", steady(0.3), lift=-0.2)
ROUTED_WRONGLY = Scenario("router 20 points off", steady(0.3), split=0.7)


@pytest.mark.parametrize(
    ("scenario", "outcome"),
    [
        *((scenario, "rolled_back") for scenario in BROKEN.values() if "50%" in scenario.name),
        (replace(WINS, bot=True), "promoted"),
        (replace(BROKEN["hang-ups 0.5"], bot=True), "rolled_back"),
        (WINS, "promoted"),
        (HARMS, "rolled_back"),
        (ROUTED_WRONGLY, "paused"),
        (SCENARIOS[1], "inconclusive"),
    ],
)
def test_the_manager_decides_as_the_simulation(scenario: Scenario, outcome: str) -> None:
    found = compare(scenario, runs=2, units=1000)
    assert found["differing"] == []
    assert found[outcome] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_the_manager_decides_as_the_simulation_in_every_scenario(scenario: Scenario) -> None:
    assert compare(scenario, runs=3, units=3000)["differing"] == []


@pytest.mark.slow
def test_without_an_effect_few_rollouts_are_promoted_and_a_naive_test_is_wrong() -> None:
    found = Rollouts(SCENARIOS[4], runs=300, units=3000, seed=1).run()
    assert found["promoted"] <= 0.06  # 2.5% nominal, four standard errors of 300 rollouts
    assert found["rolled_back"] <= 0.05
    assert pooled_ramp(runs=100, seed=1)["wrong"] > 0.5

"""Rollouts of kernels: a faster one wins, one that is slower, wrong or broken is taken back."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from coding_framework.deployment.ab_testing import ABTestConfig, RampStep
from coding_framework.deployment.kernel_rollout import (
    LONGEST,
    as_speedup,
    kernel_outcome,
    kernel_rollout,
    kernel_unit,
    log_time_ratio,
)
from coding_framework.deployment.manager import expose
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.verify import verify
from support.rollouts import Deployment

pytestmark = pytest.mark.unit

AT_ONCE = (RampStep(share=0.5, min_dwell_s=0.0, min_units=0),)


def short(**settings: object) -> ABTestConfig:
    given = {"steps": AT_ONCE, "horizon_units": 500, **settings}
    return kernel_rollout("kernels", incumbent="old", candidate="new", **given)


def test_a_unit_is_a_process_a_shape_and_a_minute() -> None:
    now = 600.0
    same = kernel_unit("host/7", "float32[4]", now)
    assert kernel_unit("host/7", "float32[4]", now + 59.9) == same
    others = {
        kernel_unit("host/7", "float32[4]", now + 60),
        kernel_unit("host/7", "float32[8]", now),
        kernel_unit("host/8", "float32[4]", now),
    }
    assert len(others) == 3
    assert same not in others


@pytest.mark.parametrize(
    ("incumbent", "served", "ratio"),
    [
        ((2.0,), (1.0,), math.log(2)),
        ((1.0, 1.0, 50.0), (1.0, 1.0, 1.0), 0.0),  # a median: one odd timing moves nothing
        ((1.0,), (1e9,), -LONGEST),
        ((1e9,), (1.0,), LONGEST),
    ],
)
def test_the_goal_is_the_clipped_logarithm_of_medians(
    incumbent: tuple[float, ...], served: tuple[float, ...], ratio: float
) -> None:
    assert log_time_ratio(incumbent, served) == pytest.approx(ratio)


@pytest.mark.parametrize("times", [(), (0.0,), (-1.0,), (math.nan,), (math.inf,)])
def test_a_time_that_is_none_is_refused(times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="positive number"):
        kernel_outcome((1.0,), times)


def test_a_kernel_that_fails_counts_as_the_slowest_whatever_its_times() -> None:
    assert kernel_outcome((), (), fault=True).values["log_time_ratio"] == -LONGEST
    assert kernel_outcome((9.0,), (1.0,), mismatch=True).bad == ("mismatch", "slower")
    assert kernel_outcome((0.98,), (1.0,)).bad == ()
    assert kernel_outcome((0.96,), (1.0,)).bad == ("slower",)


def rolled_out(path: Path, speed: float, **flaws: float) -> Deployment:
    """A rollout of 500 units whose candidate has so many times the speed, at 5% of noise."""
    deployed, draw = Deployment(path, short()), random.Random(1)

    def times(of: float) -> list[float]:
        return [of * math.exp(draw.gauss(0, 0.05)) for _ in range(3)]

    for first in range(0, 500, 50):
        with deployed.store.transaction() as tx:
            for number in range(first, first + 50):
                candidate = bool(number % 2)
                happened = {f: candidate and draw.random() < p for f, p in flaws.items()}
                outcome = kernel_outcome(
                    times(1.0), times(1.0 / speed if candidate else 1.0), **happened
                )
                name = f"r{number}"
                variant = "candidate" if candidate else "incumbent"
                assert expose(tx, deployed.id, name.encode(), variant, name)
                assert tx.add_outcome(name, outcome.model_dump_json())
        deployed.clock.pass_(200)
        if deployed.act() in ("PROMOTED", "ROLLED_BACK", "STOPPED"):
            break
    return deployed


@pytest.mark.parametrize(
    ("speed", "flaws", "state"),
    [
        (1.1, {}, "PROMOTED"),
        (0.8, {}, "ROLLED_BACK"),
        (1.5, {"mismatch": 0.3}, "ROLLED_BACK"),
        (1.5, {"fault": 0.3}, "ROLLED_BACK"),
        (1.0, {}, "STOPPED"),
    ],
)
def test_a_rollout_of_kernels_decides(
    tmp_path: Path, speed: float, flaws: dict[str, float], state: str
) -> None:
    deployed = rolled_out(tmp_path / "d.sqlite", speed, **flaws)
    assert deployed.state == state
    assert verify(deployed.store).difference is None


def test_an_effect_is_told_as_a_speedup(tmp_path: Path) -> None:
    deployed = rolled_out(tmp_path / "d.sqlite", 1.1)
    told = deployed.manager.evaluate(deployed.id).numbers["estimates"]["log_time_ratio"]
    if told["estimate"] is not None:
        assert as_speedup(told["estimate"]) == pytest.approx(1.1, rel=0.05)
    assert as_speedup(0.0) == 1.0


def test_a_kernels_outcome_has_no_utility() -> None:
    assert Outcome.model_validate(kernel_outcome((1.0,), (1.0,)).model_dump()).speedup is None

"""Who gets which version, and what a rollout may be."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from coding_framework.deployment.ab_testing import (
    DEFAULT_METRICS,
    ABTestConfig,
    Endpoint,
    Experiment,
    Metric,
    RampStep,
    TestVariant,
    TrafficRouter,
    unit_of,
)
from coding_framework.deployment.decisions import look_at
from support.waiting import at_most_cpu_s

pytestmark = pytest.mark.unit

OLD = TestVariant(name="incumbent", version="v1")
NEW = TestVariant(name="candidate", version="v2")
UNITS = [unit_of(b"secret", f"user {i}") for i in range(20_000)]


def config(**changes: object) -> ABTestConfig:
    return ABTestConfig.model_validate(
        {"alias": "kernels", "incumbent": OLD, "candidate": NEW, **changes}
    )


def router(enrolment: float, split: float = 0.5, generation: int = 3) -> TrafficRouter:
    experiment = Experiment(
        id="e1", salt_enrol="a", salt_arm="b", enrolment=enrolment, split=split, candidate="v2"
    )
    endpoint = Endpoint(incumbent="v1", generation=generation, experiment=experiment)
    return TrafficRouter({"kernels": endpoint, "quiet": Endpoint(incumbent="v0", generation=1)})


def test_without_a_rollout_the_incumbent_answers() -> None:
    assert router(1.0).route("quiet", UNITS[0]) == ("v0", None, "incumbent", False, 1)


def test_shares_are_those_that_are_asked_for() -> None:
    found = [router(0.2, 0.25).route("kernels", unit) for unit in UNITS]
    enrolled = [a for a in found if a.enrolled]
    assert len(enrolled) / len(UNITS) == pytest.approx(0.2, abs=0.012)
    candidates = sum(a.variant == "candidate" for a in enrolled)
    assert candidates / len(enrolled) == pytest.approx(0.25, abs=0.03)


def test_who_is_in_stays_in_and_in_the_same_arm() -> None:
    before, after = router(0.1), router(0.6)
    for unit in UNITS[:4000]:
        first, second = before.route("kernels", unit), after.route("kernels", unit)
        if first.enrolled:
            assert (second.enrolled, second.variant) == (True, first.variant)


def test_the_arm_does_not_depend_on_when_a_unit_was_enrolled() -> None:
    small, large = router(0.1), router(1.0)
    early = [u for u in UNITS if small.route("kernels", u).enrolled]
    late = [u for u in UNITS if not small.route("kernels", u).enrolled]
    for units in (early, late):
        share = sum(large.route("kernels", u).variant == "candidate" for u in units) / len(units)
        assert share == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(len(units)))


def test_nobody_is_enrolled_at_zero_and_everybody_at_one() -> None:
    assert not any(router(0.0).route("kernels", unit).enrolled for unit in UNITS[:2000])
    assert all(router(1.0).route("kernels", unit).enrolled for unit in UNITS[:2000])


def test_a_unit_tells_nothing_of_what_it_was_made_of() -> None:
    assert unit_of(b"one", "user") != unit_of(b"another", "user")
    assert len(unit_of(b"one", "user")) == 16


def test_routing_is_quick() -> None:
    """The bar is 20 us on an idle machine; here ten times that, of CPU time."""
    routes = router(0.5)
    with at_most_cpu_s(1000 * 200e-6):
        for unit in UNITS[:1000]:
            routes.route("kernels", unit)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"candidate": TestVariant(name="candidate", version="v1")}, "both v1"),
        ({"candidate": OLD}, "named incumbent and candidate"),
        ({"steps": ()}, "must grow"),
        ({"steps": (RampStep(share=0.5), RampStep(share=0.1))}, "must grow"),
        ({"steps": (RampStep(share=0.6),)}, "up to the split 0.5"),
        ({"metrics": ()}, "exactly one metric"),
        ({"metrics": (Metric(name="m", kind="goal", type="bad_event"),)}, "bounded mean"),
        (
            {"metrics": (Metric(name="m", kind="goal", type="bounded_mean"),) * 2},
            "two metrics have one name",
        ),
        (
            {"metrics": (Metric(name="adopted", kind="goal", type="bounded_mean"),)},
            "nothing measures adopted",
        ),
        (
            {
                "metrics": (
                    *DEFAULT_METRICS,
                    Metric(name="eror", kind="guardrail", type="bad_event"),
                )
            },
            "nothing measures eror",
        ),
        ({"split": 1.0}, "less than 1"),
        ({"shadow_unit": 3}, "shadow_unit"),
    ],
)
def test_what_is_no_rollout_is_refused_in_a_sentence(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        config(**changes)


def test_a_stored_rollout_keeps_metrics_that_are_measured_no_more() -> None:
    goal = Metric(name="adopted", kind="goal", type="bounded_mean")
    text = config().model_copy(update={"metrics": (goal,)}).model_dump_json()
    assert ABTestConfig.stored(text).goal == goal


def test_enrolment_gives_the_candidate_its_share_of_all_traffic() -> None:
    assert [config().enrolment(step) for step in range(5)] == [0.02, 0.1, 0.2, 0.5, 1.0]


def test_guardrails_share_their_alpha() -> None:
    rollout = config()
    shares = {m.name: rollout.alpha_of(m) for m in rollout.metrics}
    assert shares == {
        "utility": 0.05,
        **dict.fromkeys(("error", "attrition", "unverified", "slow", "cheat"), 0.01),
    }


@pytest.mark.parametrize(
    ("value", "scaled"),
    [(1e300, 1.0), (-math.inf, 0.0), (math.nan, None), (5.0, 0.5), (-3.0, 0.0)],
)
def test_observations_are_clipped_and_no_number_is_refused(
    value: float, scaled: float | None
) -> None:
    metric = Metric(name="m", kind="goal", type="bounded_mean", low=0.0, high=10.0)
    assert metric.scaled(value) == scaled


def test_less_is_better_where_the_metric_says_so() -> None:
    metric = Metric(name="m", kind="signal", type="bounded_mean", better="lower")
    assert metric.scaled(0.25) == 0.75


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_a_range_has_two_finite_ends(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="low must be below high"):
        Metric(name="m", kind="goal", type="bounded_mean", low=bounds[0], high=bounds[1])


def test_there_are_five_looks() -> None:
    assert [n for n in range(1003) if look_at(n, 1003)] == [200, 401, 601, 802]
    assert look_at(1003, 1003) == 5

"""When a median is known: intervals, stopping and warm-up, on drawn and on made-up times."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.cuda.timing.statistics import (
    TimingProtocol,
    is_stable,
    median_interval,
    sample_until_known,
    summary,
    warm_up,
)

pytestmark = pytest.mark.unit

PROTOCOL = TimingProtocol()


def ticking(step_s: float = 0.001) -> Callable[[], float]:
    """A clock that moves on by so much each time it is read."""
    times = itertools.count(0.0, step_s)
    return lambda: next(times)


def noisy(median_ms: float, spread: float, seed: int = 0) -> Callable[[], float]:
    """Times as a GPU gives them: a floor, and now and then a long one."""
    rng = random.Random(seed)

    def call() -> float:
        slow = 1.5 if rng.random() < 0.02 else 1.0
        return median_ms * slow * (1 + spread * rng.gauss(0.0, 1.0))

    return call


@given(st.lists(st.floats(0.001, 1e4), min_size=1, max_size=300))
def test_the_interval_holds_the_median_of_the_samples(samples: list[float]) -> None:
    low, high = median_interval(samples)
    found = summary(samples, PROTOCOL)
    assert min(samples) <= low <= found.median_ms <= high <= max(samples)


def test_no_samples_have_no_interval() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_few_samples_give_their_whole_range() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_nineteen_of_twenty_intervals_hold_the_true_median() -> None:
    rng = random.Random(7)
    for size in (10, 30, 100):
        held = 0
        for _ in range(1000):
            low, high = median_interval([rng.expovariate(1.0) for _ in range(size)])
            held += low <= 0.6931 <= high
        assert held >= 940, size


def test_equal_times_are_known_at_once() -> None:
    samples = sample_until_known(lambda: 0.5, PROTOCOL, ticking())
    assert len(samples) == PROTOCOL.min_samples
    found = summary(samples, PROTOCOL)
    assert (found.median_ms, found.width, found.settled) == (0.5, 0.0, True)


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.03])
def test_sampling_goes_on_until_the_interval_is_narrow(spread: float) -> None:
    samples = sample_until_known(noisy(0.08, spread), PROTOCOL, ticking(1e-4))
    found = summary(samples, PROTOCOL)
    assert found.settled
    assert found.width <= 0.01
    assert found.median_ms == pytest.approx(0.08, rel=0.01)


def test_looking_again_and_again_costs_little_of_the_coverage() -> None:
    held = 0
    for seed in range(300):
        samples = sample_until_known(noisy(1.0, 0.02, seed), PROTOCOL, ticking(1e-4))
        low, high = median_interval(samples)
        held += low <= 1.0004 and high >= 0.9996
    assert held >= 270


def test_caps_on_samples_and_on_time_end_a_noisy_measurement() -> None:
    by_count = sample_until_known(noisy(1.0, 0.5), PROTOCOL, ticking(1e-6))
    assert len(by_count) == PROTOCOL.max_samples
    by_time = sample_until_known(noisy(1.0, 0.5), PROTOCOL, ticking(0.3))
    assert len(by_time) < PROTOCOL.max_samples
    assert not summary(by_time, PROTOCOL).settled


def test_warm_up_lasts_until_the_clock_has_risen() -> None:
    rising: Iterator[float] = iter([1.0 - 0.01 * min(i, 50) for i in range(1000)])
    samples = warm_up(lambda: next(rising), PROTOCOL, ticking(1e-4))
    assert 50 < len(samples) < PROTOCOL.warm_up_calls
    assert is_stable(samples[-16:-8], samples[-8:], PROTOCOL)


def test_warm_up_of_what_never_settles_ends() -> None:
    jumping = itertools.cycle([1.0] * 8 + [2.0] * 8)
    assert len(warm_up(lambda: next(jumping), PROTOCOL, ticking(1e-6))) == PROTOCOL.warm_up_calls


@pytest.mark.parametrize(
    ("call_ms", "fewest", "made"),
    [(0.01, 30, 30), (1.6, 30, 30), (4.0, 13, 20), (20.0, 6, 8), (80.0, 6, 6)],
)
def test_long_calls_are_repeated_less_often(call_ms: float, fewest: int, made: int) -> None:
    assert PROTOCOL.fewest_calls(call_ms) == fewest
    samples = sample_until_known(lambda: call_ms, PROTOCOL, ticking())
    assert len(samples) == made  # whole batches
    assert summary(samples, PROTOCOL).settled


def test_long_calls_that_vary_are_repeated_until_the_cap() -> None:
    times = itertools.cycle([80.0, 90.0])
    samples = sample_until_known(lambda: next(times), PROTOCOL, ticking(0.09))
    assert len(samples) > 6
    assert not summary(samples, PROTOCOL).settled


def test_a_fast_call_after_a_long_one_is_not_known_by_six() -> None:
    times = itertools.chain([300.0], itertools.repeat(1.0))
    samples = sample_until_known(lambda: next(times), PROTOCOL, ticking(1e-4))
    assert summary(samples, PROTOCOL).width <= PROTOCOL.target_width


def test_no_median_rests_on_fewer_than_six_calls() -> None:
    assert len(sample_until_known(lambda: 1100.0, PROTOCOL, ticking(1.1))) == 6


def test_what_is_long_while_somebody_looks_is_not_measured_after_that() -> None:
    """The checked call is one of the first six, so no later one may count."""
    times = itertools.chain([40.0] * 6, itertools.repeat(0.05))
    samples = sample_until_known(
        lambda: next(times), PROTOCOL, ticking(), calls=PROTOCOL.fewest_calls(36.0)
    )
    assert samples == [40.0] * 6


def test_warm_up_of_long_calls_is_short() -> None:
    assert len(warm_up(lambda: 80.0, PROTOCOL, ticking(1e-3))) == 2

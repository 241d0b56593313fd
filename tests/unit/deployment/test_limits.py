"""What one caller may have."""

from __future__ import annotations

import pytest

from coding_framework.deployment.limits import Limits, Meter, OverLimitError

pytestmark = pytest.mark.unit


def test_candidates_are_counted_for_each_caller() -> None:
    meter = Meter(Limits(candidates_per_min=10), clock=lambda: 0.0)
    meter.candidates("a", 10)
    with pytest.raises(OverLimitError) as over:
        meter.candidates("a", 1)
    assert over.value.retry_after_s == pytest.approx(6.0)
    meter.candidates("b", 1)


def test_a_request_that_is_refused_is_not_counted_as_running() -> None:
    meter = Meter(Limits(concurrent=1, requests_per_s=1.0), clock=lambda: 0.0)
    for _ in range(2):
        with meter.request("a"):
            pass
    with pytest.raises(OverLimitError, match="a second"):
        meter.request("a").__enter__()

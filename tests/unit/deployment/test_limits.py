"""What one caller may have."""

from __future__ import annotations

import pytest

from coding_framework.deployment.limits import Limits, Meter, OverLimitError
from coding_framework.deployment.tokens import Token

pytestmark = pytest.mark.unit


def token(**limits: float) -> Token:
    return Token.model_validate(
        {"id": "t", "sha256": "", "scopes": ["complete"], "created_at": 0.0, **limits}
    )


def test_candidates_are_counted_for_each_caller() -> None:
    meter = Meter(Limits(candidates_per_min=10), clock=lambda: 0.0)
    meter.candidates("a", None, 10)
    with pytest.raises(OverLimitError) as over:
        meter.candidates("a", None, 1)
    assert over.value.retry_after_s == pytest.approx(6.0)
    meter.candidates("b", None, 1)


def test_a_request_that_is_refused_is_not_counted_as_running() -> None:
    meter = Meter(Limits(concurrent=1, requests_per_s=1.0), clock=lambda: 0.0)
    for _ in range(2):
        with meter.request("a", None):
            pass
    with pytest.raises(OverLimitError, match="a second"):
        meter.request("a", None).__enter__()


def test_a_tokens_own_limits_win() -> None:
    meter = Meter(Limits(concurrent=1))
    two = token(concurrent=2)
    with meter.request("a", two), meter.request("a", two), pytest.raises(OverLimitError):
        meter.request("a", two).__enter__()

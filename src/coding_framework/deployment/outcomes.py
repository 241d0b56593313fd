"""What came of a request, and what of it a rollout observes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from coding_framework.deployment.ab_testing import ABTestConfig
from coding_framework.types import Record

Status = Literal[
    "verified", "unverified", "not_judged", "error", "timeout", "cancelled", "refused", "lost"
]
_FAILED = ("error", "timeout", "lost")
_BROKEN_OFF = ("cancelled", "refused")
_LEAST_USE = 0.05


class Outcome(Record):
    """How one request ended. Maker: the server. Consumer: `Rollout`."""

    status: Status
    """not_judged: answered, without a task to judge by; cancelled: its client went away; refused:
    the model's server would not answer it (4xx); lost: no process ever told what came of it."""
    speedup: float | None = None
    """Of a verified kernel, over the baseline; None where it was not timed."""
    seconds: float | None = None
    """From the request to the last byte."""
    cheated: bool = False
    """Whether any candidate kernel was judged cheating."""


class Observation(NamedTuple):
    """What counts of one outcome."""

    values: Mapping[str, float]
    bad: frozenset[str]


def utility(outcome: Mapping[str, Any]) -> float:
    """0 without a verified kernel, .5 at PyTorch's speed, 1 at eight times it; .05 for a verified
    kernel whose speed is unknown. NaN where the speedup is no positive number."""
    if outcome["status"] != "verified":
        return 0.0
    if outcome.get("speedup") is None:
        return _LEAST_USE
    speedup = float(outcome["speedup"])
    if math.isnan(speedup) or speedup <= 0:
        return math.nan
    return min(max(0.5 + math.log2(speedup) / 6, _LEAST_USE), 1.0)


def observation(outcome: Mapping[str, Any], config: ABTestConfig) -> Observation:
    """outcome: JSON of an `Outcome`; fields that it had before are passed over."""
    status, bad = outcome["status"], set[str]()
    if status in _BROKEN_OFF:
        bad.add("attrition")
    if status in _FAILED:
        bad.add("error")
    if status == "unverified":
        bad.add("unverified")
    if outcome.get("cheated"):
        bad.add("cheat")
    seconds = outcome.get("seconds")
    if config.slow_s is not None and seconds is not None and float(seconds) > config.slow_s:
        bad.add("slow")
    values = {} if status == "not_judged" else {"utility": utility(outcome)}
    return Observation(values, frozenset(bad))

"""What a rollout compares, and who gets which version.

`TrafficRouter` is pure: a unit's assignment is computed from its hash and the experiment's two
salts, so that no process has to ask another. Enrolment and arm have a salt each: enrolment is
nested (who is in stays in, in the same arm, while it grows), and the arm does not depend on it. The
split between the arms never changes within an experiment. Ramping the split while the base rate
drifts gave a pooled test 93% false positives in a simulation, ramping the enrolment 1.8%.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationInfo, model_validator

from coding_framework.types import Config, Record

Better = Literal["higher", "lower"]
_HASH_BITS = 53


def __getattr__(name: str) -> Any:
    """The manager of these tests, which is found under this module's name too."""
    if name == "ABTestManager":
        return import_module("coding_framework.deployment.manager").ABTestManager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TestVariant(Record):
    """One side of a rollout."""

    __test__ = False  # pytest takes classes named so for tests

    name: Literal["incumbent", "candidate"]
    version: str = Field(min_length=1)


class Metric(Record):
    """What is compared. A goal promotes, a guardrail rolls back, a signal pauses."""

    name: str = Field(min_length=1)
    kind: Literal["goal", "guardrail", "signal"]
    type: Literal["bounded_mean", "bad_event"]
    low: float = 0.0
    high: float = 1.0
    """Observations of a bounded mean are clipped to [low, high], and clips are counted."""
    better: Better = "higher"
    margin: float = Field(default=0.0, ge=0.0)
    """Harm that is tolerated in a bounded mean, in its own unit: a candidate is rolled back when it
    is known to be worse by more than this."""
    relative_risk: float = Field(default=1.25, ge=1.0)
    """A bad event may be so many times as likely in the candidate."""
    alpha: float | None = Field(default=None, gt=0.0, lt=1.0)
    """None: .05 for the goal, .05 shared by the guardrails."""

    @model_validator(mode="after")
    def _range_is_one(self) -> Self:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low must be below high, both finite, not {self.low} and {self.high}")
        return self

    def scaled(self, value: float) -> float | None:
        """An observation in [0, 1], higher is better; None where it is no number."""
        if math.isnan(value):
            return None
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return share if self.better == "higher" else 1.0 - share


class RampStep(Record):
    """The candidate's share of all traffic, and what must be seen before the next step."""

    share: float = Field(gt=0.0, le=1.0)
    min_dwell_s: float = Field(default=600.0, ge=0.0)
    min_units: int = Field(default=50, ge=0)
    """Units of the candidate whose window has closed."""


DEFAULT_STEPS = (
    RampStep(share=0.01, min_units=50),
    RampStep(share=0.05, min_units=200),
    RampStep(share=0.10, min_units=500),
    RampStep(share=0.25, min_units=1000),
    RampStep(share=0.50, min_units=0),
)
DEFAULT_METRICS = (
    Metric(name="utility", kind="goal", type="bounded_mean"),
    Metric(name="error", kind="guardrail", type="bad_event"),
    Metric(name="attrition", kind="guardrail", type="bad_event"),
    Metric(name="unverified", kind="guardrail", type="bad_event"),
    Metric(name="slow", kind="guardrail", type="bad_event"),
    Metric(name="cheat", kind="guardrail", type="bad_event"),
)
"""All that is measured (`outcomes.observation`)."""


class ABTestConfig(Config):
    """One rollout of a candidate against an incumbent, fixed before it starts."""

    alias: str = Field(min_length=1)
    """The endpoint's name, which callers ask for."""
    incumbent: TestVariant
    candidate: TestVariant
    window_s: float = Field(default=3600.0, gt=0.0)
    """A unit's observation ends so many seconds after its enrolment."""
    split: float = Field(default=0.5, gt=0.0, lt=1.0)
    """The candidate's share of the enrolled units. It never changes."""
    shadow_units: int = Field(default=1500, ge=0)
    """Units that both versions answer, unseen, before the candidate serves. 0: no shadow phase."""
    shadow_share: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of the units that both versions answer in the shadow phase."""
    steps: tuple[RampStep, ...] = DEFAULT_STEPS
    metrics: tuple[Metric, ...] = DEFAULT_METRICS
    horizon_units: int | None = Field(default=None, ge=5)
    """Units at which the rollout ends at the latest. Default: what finds `mde` with `power`."""
    mde: float = Field(default=0.03, gt=0.0)
    """Smallest effect on the goal that must be found."""
    power: float = Field(default=0.8, gt=0.0, lt=1.0)
    """Probability with which it must be found."""
    alpha: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Probability of a wrong verdict on the goal, on both sides together."""
    max_duration_s: float = Field(default=14 * 86400.0, gt=0.0)
    """Seconds after which the rollout ends without a verdict."""
    on_inconclusive: Literal["keep_incumbent", "promote_if_not_worse"] = "keep_incumbent"
    """What happens at the horizon without a verdict."""
    freshness_s: float = Field(default=600.0, gt=0.0)
    """No step is taken where the newest outcome is older."""
    answer_within_s: float = Field(default=180.0, gt=0.0)
    """A request without an outcome after so many seconds is lost, which is an error."""
    slow_s: float | None = Field(default=None, gt=0.0)
    """A request that takes more seconds is slow. Default: none is."""

    @model_validator(mode="after")
    def _is_a_rollout(self, info: ValidationInfo) -> Self:
        if (self.incumbent.name, self.candidate.name) != ("incumbent", "candidate"):
            raise ValueError("the variants must be named incumbent and candidate")
        if self.incumbent.version == self.candidate.version:
            raise ValueError(
                f"incumbent and candidate are both {self.incumbent.version}: choose another version"
            )
        names = [metric.name for metric in self.metrics]
        if len(set(names)) < len(names):
            raise ValueError(f"two metrics have one name: {', '.join(sorted(names))}")
        if sum(metric.kind == "goal" for metric in self.metrics) != 1:
            raise ValueError("exactly one metric must be the goal")
        if any(m.kind == "goal" and m.type != "bounded_mean" for m in self.metrics):
            raise ValueError("the goal must be a bounded mean")
        if self.on_inconclusive == "promote_if_not_worse" and self.goal.margin == 0:
            raise ValueError(
                "promote_if_not_worse needs the goal's margin: how much worse the candidate may be"
            )
        measured = {m.name: m.type for m in DEFAULT_METRICS}
        unknown = [m.name for m in self.metrics if measured.get(m.name) != m.type]
        if unknown and info.context != "stored":
            raise ValueError(f"nothing measures {unknown[0]} so: there are {measured}")
        shares = [step.share for step in self.steps]
        if not shares or shares != sorted(set(shares)) or shares[-1] > self.split:
            raise ValueError(f"the steps must grow, up to the split {self.split} at most: {shares}")
        return self

    @classmethod
    def stored(cls, text: str) -> ABTestConfig:
        """As it was stored, in JSON. Of what an older version knew only metrics stay."""
        given = json.loads(text)
        known = {k: v for k, v in given.items() if k in cls.model_fields}
        return cls.model_validate(known, context="stored")

    @property
    def goal(self) -> Metric:
        return next(metric for metric in self.metrics if metric.kind == "goal")

    def alpha_of(self, metric: Metric) -> float:
        """Of this metric's alarms: the guardrails share .05."""
        if metric.alpha is not None:
            return metric.alpha
        sharing = sum(m.kind == metric.kind for m in self.metrics)
        return self.alpha if metric.kind == "goal" else 0.05 / sharing

    def enrolment(self, step: int) -> float:
        """Share of the units that take part at this step of the ramp."""
        return min(1.0, self.steps[step].share / self.split)


class Experiment(Record):
    """A running rollout, as far as routing needs it."""

    id: str
    salt_enrol: str
    salt_arm: str
    enrolment: float = Field(ge=0.0, le=1.0)
    split: float = Field(gt=0.0, lt=1.0)
    candidate: str
    """Its version."""


class Shadow(Record):
    """A candidate that answers in secret beside the incumbent."""

    experiment: str
    candidate: str
    """Its version."""
    share: float = Field(ge=0.0, le=1.0)
    """Of the units whose requests both answer."""
    salt: str


class Endpoint(Record):
    """What an alias stands for now."""

    incumbent: str
    generation: int
    experiment: Experiment | None = None
    shadow: Shadow | None = None


class Assignment(NamedTuple):
    """Who answers a request. A tuple: one is made for every request."""

    version: str
    experiment: str | None
    variant: Literal["incumbent", "candidate"]
    enrolled: bool
    generation: int


class TrafficRouter:
    """Assigns units to versions from a snapshot in memory; no input and no output."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)

    def route(self, alias: str, unit: bytes) -> Assignment:
        """Who answers for this unit (`unit_of`). Raises KeyError for an unknown alias."""
        endpoint = self._endpoints[alias]
        experiment = endpoint.experiment
        if experiment is None or _uniform(experiment.salt_enrol, unit) >= experiment.enrolment:
            return Assignment(endpoint.incumbent, None, "incumbent", False, endpoint.generation)
        if _uniform(experiment.salt_arm, unit) < experiment.split:
            version, variant = experiment.candidate, "candidate"
        else:
            version, variant = endpoint.incumbent, "incumbent"
        return Assignment(version, experiment.id, variant, True, endpoint.generation)  # type: ignore[arg-type]

    def without_rollout(self, alias: str) -> Assignment:
        """The incumbent's answer, outside of any rollout. Raises KeyError for an unknown alias."""
        endpoint = self._endpoints[alias]
        return Assignment(endpoint.incumbent, None, "incumbent", False, endpoint.generation)

    def shadow(self, alias: str, unit: bytes) -> Shadow | None:
        """The candidate that answers this unit's request as well, unseen; None: none does. Raises
        KeyError for an unknown alias."""
        shadow = self._endpoints[alias].shadow
        if shadow is None or _uniform(shadow.salt, unit) >= shadow.share:
            return None
        return shadow


def unit_of(secret: bytes, value: str) -> bytes:
    """A unit's 16 bytes; what it was made of is never stored. secret: of the server, 64 bytes at
    most."""
    return hashlib.blake2b(value.encode(), digest_size=16, key=secret).digest()


def _uniform(salt: str, unit: bytes) -> float:
    """In [0, 1), by salt and unit alone."""
    data = salt.encode()
    digest = hashlib.blake2b(data + len(data).to_bytes(8, "big") + unit, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _HASH_BITS)) / 2.0**_HASH_BITS

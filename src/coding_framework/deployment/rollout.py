"""What a rollout's log says: its statistics, and the decision that follows from them.

`Rollout` reads events in their order. Everything in it is a function of the events it has read and
of the time it was told last, so that any process that reads the same log comes to the same numbers
and decisions, to the bit. It never reads a clock.
"""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from coding_framework.deployment.ab_testing import ABTestConfig, Metric
from coding_framework.deployment.decisions import (
    BROKEN_RATIO_P,
    ENOUGH_UNITS,
    LOOKS,
    breaks,
    harms,
    look_at,
    ratio_is_broken,
    wins,
)
from coding_framework.deployment.outcomes import Observation, observation
from coding_framework.deployment.statistics import (
    Effect,
    log_odds_e,
    log_sample_ratio_e,
    spending_bounds,
)
from coding_framework.deployment.store import FINAL, Event

SHADOW_MARGIN = 0.10
"""Harm up to which a candidate that only answered in secret may go on."""
_HARM_LOOKS = 100
"""Looks at harm and at the sample ratio until the horizon."""
_SECOND_US = 1_000_000
Evidence = dict[str, Any]


class Decision(NamedTuple):
    """What the log demands next."""

    to: str
    """A state."""
    reason: str
    evidence: Evidence
    step: int | None = None
    """Of the ramp."""


class Gate(NamedTuple):
    """What a rollout waits for before its next step."""

    to: str
    missing: tuple[str, ...]
    """In words; empty: nothing."""


@dataclass(slots=True)
class Unit:
    """What one unit's own events say of it."""

    candidate: bool
    ends_us: int
    """When its window ends."""
    open: int = 0
    """Requests within its window that have no outcome."""
    sums: list[float] | None = None
    counts: list[int] | None = None
    """For each bounded metric; None: no value came, or they are counted."""
    bad: tuple[str, ...] = ()


@dataclass(slots=True)
class Counts:
    """What is counted beside the statistics."""

    enrolled: list[int] = field(default_factory=lambda: [0, 0])
    """Incumbent, candidate; likewise below."""
    closed: list[int] = field(default_factory=lambda: [0, 0])
    exposures: list[int] = field(default_factory=lambda: [0, 0])
    outcomes: list[int] = field(default_factory=lambda: [0, 0])
    lost: list[int] = field(default_factory=lambda: [0, 0])
    empty: list[int] = field(default_factory=lambda: [0, 0])
    """Units whose window closed without anything to count."""
    clipped: int = 0
    refused: int = 0
    """Values that were no numbers."""


class Rollout:
    """One experiment, as far as its log was read. config: with `horizon_units` set."""

    def __init__(self, config: ABTestConfig) -> None:
        if config.horizon_units is None:
            raise ValueError("a rollout's horizon must be set")
        self.config, self.horizon = config, config.horizon_units
        self.means = tuple(m for m in config.metrics if m.type == "bounded_mean")
        self.events = tuple(m for m in config.metrics if m.type == "bad_event")
        self._bounds = spending_bounds(LOOKS, config.alpha)  # now: later a database may be locked
        self._every = max(1, self.horizon // _HARM_LOOKS)
        self.seq = 0
        self.now_us = 0
        self.state, self.step, self.resume_state, self.entered_us = "DRAFT", 0, "", 0
        self.started_us = 0
        self.newest_outcome_us = 0
        self.counts = Counts()
        self.effects = {m.name: Effect() for m in self.means}
        self.pairs = Effect()
        self.bad = {m.name: [0, 0] for m in self.events}
        """Units with a bad event: of the candidate, of both."""
        self.bad_pairs = {m.name: [0, 0] for m in self.events}
        self.ratio = [0, 0]
        """Units enrolled since the last time a person looked at the ratio: of the candidate, of
        both."""
        self.muted: list[str] = []
        """Signals that a person has seen."""
        self.alarm: Decision | None = None
        self.pause: Decision | None = None
        self.win: Evidence | None = None
        self.looks: list[tuple[str, int, int, int, float, float, float]] = []
        """At harm: metric, seq, units of both arms, estimate, interval."""
        self._units: dict[bytes, Unit] = {}
        self._queue: deque[Unit] = deque()
        """Units whose window is open, in the order of their enrolment."""
        self._open: dict[str, tuple[bytes, int]] = {}
        """Requests without an outcome, oldest first: unit, time."""
        self._paired: set[bytes] = set()

    # --- reading the log ------------------------------------------------------------------------

    def read(self, event: Event) -> None:
        """Take in the next event of the log."""
        self.advance(event.ts_us)
        self.seq = event.seq
        if event.kind == "exposure":
            self._exposure(event)
        elif event.kind == "outcome":
            self._outcome(event)
            self._close_windows()
        elif event.kind == "shadow_pair":
            self._pair(event)
        elif event.kind == "transition":
            self._transition(json.loads(event.body))

    def advance(self, now_us: int) -> None:
        """It is so late; no event before it is still to come."""
        self.now_us = max(self.now_us, now_us)
        self._close_windows()

    def lost_requests(self) -> list[str]:
        """Requests that have waited too long for their outcome."""
        limit = self.now_us - round(self.config.answer_within_s * _SECOND_US)
        found = []
        for request, (_, since) in self._open.items():
            if since > limit:
                break
            found.append(request)
        return found

    def _exposure(self, event: Event) -> None:
        key, candidate = event.unit or b"", event.variant == "candidate"
        self.counts.exposures[candidate] += 1
        unit = self._units.get(key)
        if unit is None:
            unit = self._enrol(key, candidate, event.ts_us)
        elif unit.candidate != candidate:
            self._pause_for("assignment", {"seq": event.seq})
        unit.open += event.ts_us < unit.ends_us
        self._open[event.request or ""] = (key, event.ts_us)

    def _enrol(self, key: bytes, candidate: bool, enrolled_us: int) -> Unit:
        unit = Unit(candidate, enrolled_us + round(self.config.window_s * _SECOND_US))
        self._units[key] = unit
        self._queue.append(unit)
        self.counts.enrolled[candidate] += 1
        self.ratio[0] += candidate
        self.ratio[1] += 1
        if self.ratio[1] % self._every == 0:
            of_candidate, units = self.ratio
            if ratio_is_broken(of_candidate, units, self.config.split):
                self._pause_for("srm", {"of_candidate": of_candidate, "units": units})
        return unit

    def _outcome(self, event: Event) -> None:
        key, exposed_us = self._open.pop(event.request or "")
        unit, outcome = self._units[key], json.loads(event.body)
        unit.open -= exposed_us < unit.ends_us
        self.counts.outcomes[unit.candidate] += 1
        self.counts.lost[unit.candidate] += outcome["status"] == "lost"
        self.newest_outcome_us = event.ts_us
        self._observed(event, unit, exposed_us)

    def _observed(self, event: Event, unit: Unit, since_us: int) -> None:
        """Count an outcome; of a bad event only a unit's first of its kind. since_us: when its
        request was exposed: what it came to after the unit's window is no value."""
        seen = observation(json.loads(event.body), self.config)
        if since_us >= unit.ends_us:
            seen = seen._replace(values={})
        for metric in self._added(unit, seen):
            found = self.bad[metric.name]
            found[0] += unit.candidate
            found[1] += 1
            if unit.candidate and breaks(found[0], found[1], metric, self.config):
                log_e = log_odds_e(found[0], found[1], self.config.split, metric.relative_risk)
                evidence = {"of_candidate": found[0], "bad": found[1], "log_e": float(log_e)}
                self._alarm_of(metric, "too often", evidence)

    # --- units: what their own events say -------------------------------------------------------

    def _added(self, unit: Unit, found: Observation) -> list[Metric]:
        """Put an observation into its unit; the bad events that the unit had not had yet."""
        for index, metric in enumerate(self.means):
            if metric.name in found.values:
                self._value(unit, index, found.values[metric.name])
        new = [m for m in self.events if m.name in found.bad and m.name not in unit.bad]
        unit.bad += tuple(metric.name for metric in new)
        return new

    def _value(self, unit: Unit, index: int, value: float) -> None:
        metric = self.means[index]
        share = metric.scaled(value)
        if share is None:
            self.counts.refused += 1
            return
        self.counts.clipped += not metric.low <= value <= metric.high
        if unit.sums is None or unit.counts is None:
            unit.sums, unit.counts = [0.0] * len(self.means), [0] * len(self.means)
        unit.sums[index] += share
        unit.counts[index] += 1

    # --- windows --------------------------------------------------------------------------------

    def _close_windows(self) -> None:
        while self._queue and self._queue[0].ends_us <= self.now_us and not self._queue[0].open:
            unit = self._queue.popleft()
            self._close(unit)
            unit.sums = unit.counts = None

    def _close(self, unit: Unit) -> None:
        goal = self.means.index(self.config.goal)
        if unit.sums is None or unit.counts is None or not unit.counts[goal]:
            self.counts.empty[unit.candidate] += 1
            return
        for index, metric in enumerate(self.means):
            if unit.counts[index]:
                mean = unit.sums[index] / unit.counts[index]
                effect = self.effects[metric.name]
                self.effects[metric.name] = effect.after(
                    int(unit.candidate), mean, self.config.split
                )
        self.counts.closed[unit.candidate] += 1
        self._look(sum(self.counts.closed))

    def _look(self, closed: int) -> None:
        if closed % self._every == 0 and min(self.counts.closed) >= ENOUGH_UNITS:
            for metric in self.means:
                self._look_at_harm(metric)
        look = look_at(closed, self.horizon)
        effect = self.effects[self.config.goal.name]
        if look is not None and self.win is None and wins(effect, look, self.config.alpha):
            self.win = {
                "look": look, "units": closed, "z": float(effect.z),
                "bound": self._bounds[look - 1],
            }  # fmt: skip

    def _look_at_harm(self, metric: Metric) -> None:
        effect, alpha = self.effects[metric.name], self.config.alpha_of(metric)
        if effect.units < 2 * ENOUGH_UNITS:
            return
        mean, low, high = self._interval(metric)
        a, b = self.counts.closed
        self.looks.append((metric.name, self.seq, a, b, mean, low, high))
        if harms(effect, metric, alpha, self.horizon):
            evidence = {"units": int(effect.units), "estimate": mean, "low": low, "high": high}
            self._alarm_of(metric, "worse", evidence)

    def _interval(self, metric: Metric) -> tuple[float, float, float]:
        effect = self.effects[metric.name]
        low, high = effect.interval(self.config.alpha_of(metric), self.horizon / 4)
        return float(effect.mean), float(low), float(high)

    def _alarm_of(self, metric: Metric, what: str, evidence: Evidence) -> None:
        reason = f"{metric.name}: {what}"
        if metric.kind == "signal":
            self._pause_for(f"signal {reason}", evidence)
        elif self.alarm is None:
            self.alarm = Decision("ROLLED_BACK", reason, {"seq": self.seq, **evidence})

    def _pause_for(self, reason: str, evidence: Evidence) -> None:
        if self.pause is None and reason not in self.muted:
            self.pause = Decision("PAUSED", reason, {"seq": self.seq, **evidence})

    def _pair(self, event: Event) -> None:
        if event.unit in self._paired:
            return
        body = json.loads(event.body)
        old, new = (observation(body[name], self.config) for name in ("incumbent", "candidate"))
        self._paired.add(event.unit or b"")
        self.newest_outcome_us = event.ts_us
        for metric in self.events:
            if (metric.name in old.bad) != (metric.name in new.bad):
                found = self.bad_pairs[metric.name]
                found[0] += metric.name in new.bad
                found[1] += 1
                log_e = float(log_odds_e(found[0], found[1], 0.5, 1.0))
                if log_e >= -math.log(self.config.alpha_of(metric)):
                    evidence = {"of_candidate": found[0], "bad": found[1], "log_e": log_e}
                    self._alarm_of(metric, "too often", evidence)
        goal = self.config.goal
        shares = [goal.scaled(o.values.get(goal.name, math.nan)) for o in (old, new)]
        if shares[0] is not None and shares[1] is not None:
            self.pairs = self.pairs.after_pair(shares[1] - shares[0])

    def _transition(self, body: Evidence) -> None:
        self.state, self.step = body["to"], body["step"]
        self.resume_state = body["resume_state"] or ""
        self.entered_us = self.now_us
        if body["action"] == "start":
            self.started_us = self.now_us
        if body["action"] == "resume" and body["reason_before"]:
            self._seen(body["reason_before"])

    def _seen(self, reason: str) -> None:
        """A person has resumed a rollout that was paused for this reason."""
        if self.pause is not None and self.pause.reason == reason:
            self.pause = None
        if reason == "srm":
            self.ratio = [0, 0]
        else:
            self.muted.append(reason)

    # --- what follows ---------------------------------------------------------------------------

    def decision(self) -> Decision | None:
        """What the log demands now; None: nothing."""
        if self.state in (*FINAL, "DRAFT", "GATED"):
            return None
        if self.alarm is not None:
            return self.alarm
        if self.state == "PAUSED":
            return None
        if self.pause is not None:
            return self.pause
        for_good = {"SHADOW": self._after_shadow, "HOLDING": self._after_holding}
        if self.state in for_good:
            found = for_good[self.state]()
            if found is not None:
                return found
        if self.now_us - self.started_us >= self.config.max_duration_s * _SECOND_US:
            return Decision("STOPPED", "inconclusive: out of time", {})
        if self.state == "RAMPING" and not self.next_gate().missing:
            return self.ramp_to(self.step + 1, "gate passed")
        return None

    def ramp_to(self, step: int, reason: str) -> Decision:
        """The move to a step of the ramp, counted from 0; the last one holds."""
        last = step == len(self.config.steps) - 1
        return Decision("HOLDING" if last else "RAMPING", reason, {}, step)

    def next_gate(self) -> Gate:
        """Where the rollout goes next, and what is missing for it."""
        if self.state == "SHADOW":
            units = int(self.pairs.units)
            return Gate("RAMPING", (f"pairs, {units} of {self.config.shadow_units} so far",))
        if self.state == "HOLDING":
            closed = sum(self.counts.closed)
            return Gate("PROMOTED", (f"closed units, {closed} of {self.horizon} so far",))
        if self.state in FINAL:
            return Gate(self.state, ())
        if self.state != "RAMPING":
            return Gate(self.resume_state or self.state, ("a person's decision",))
        step = self.config.steps[self.step]
        dwelt = (self.now_us - self.entered_us) / _SECOND_US
        stale = (self.now_us - self.newest_outcome_us) / _SECOND_US
        missing = []
        if dwelt < step.min_dwell_s:
            missing.append(f"{step.min_dwell_s - dwelt:.0f} s")
        if self.counts.closed[1] < step.min_units:
            missing.append(f"{step.min_units - self.counts.closed[1]} units of the candidate")
        if stale > self.config.freshness_s:
            missing.append("an outcome that is newer")
        share = self.config.steps[self.step + 1].share
        return Gate(f"{share:.0%} of the traffic", tuple(missing))

    def _after_shadow(self) -> Decision | None:
        pairs, config = self.pairs, self.config
        if config.shadow_units == 0:
            return self.ramp_to(0, "no shadow phase")
        if pairs.units < min(ENOUGH_UNITS, config.shadow_units):
            return None
        low, high = pairs.interval(config.alpha, config.shadow_units)
        evidence = {
            "pairs": int(pairs.units), "estimate": float(pairs.mean),
            "low": float(low), "high": float(high),
        }  # fmt: skip
        if high < -max(config.goal.margin, 0.0):
            return Decision("ROLLED_BACK", f"{config.goal.name}: worse in the shadow", evidence)
        if low > -SHADOW_MARGIN:
            return self.ramp_to(0, "the shadow does no harm")._replace(evidence=evidence)
        if pairs.units >= config.shadow_units:
            return Decision("STOPPED", "inconclusive shadow", evidence)
        return None

    def _after_holding(self) -> Decision | None:
        if self.win is not None:
            return Decision("PROMOTED", "better at a planned look", self.win)
        closed = sum(self.counts.closed)
        if closed < self.horizon:
            return None
        goal = self.config.goal
        mean, low, high = self._interval(goal)
        evidence = {"units": closed, "estimate": mean, "low": low, "high": high}
        allowed = goal.margin / (goal.high - goal.low)
        if self.config.on_inconclusive == "promote_if_not_worse" and low > -allowed:
            return Decision("PROMOTED", "not worse than the margin", evidence)
        return Decision("STOPPED", "inconclusive at the horizon", evidence)

    def summary(self) -> dict[str, Any]:
        """The numbers for people: counts, estimates with intervals, e-values."""
        ratio_p = 1.0
        if self.ratio[1]:
            log_e = float(log_sample_ratio_e(self.ratio[0], self.ratio[1], self.config.split))
            ratio_p = min(1.0, _exp(-log_e))
        gate = self.next_gate()
        return {
            "counts": asdict(self.counts),
            "shadow_pairs": int(self.pairs.units),
            "estimates": {m.name: self._shown(m) for m in self.means},
            "bad": {m.name: self._shown_bad(m) for m in self.events},
            "srm_p": ratio_p,
            "srm_bar": BROKEN_RATIO_P,
            "horizon_units": self.horizon,
            "next": {"to": gate.to, "missing": list(gate.missing)},
            "seq": self.seq,
        }

    def _shown(self, metric: Metric) -> dict[str, Any]:
        if min(self.counts.closed) < ENOUGH_UNITS:
            return {"estimate": None, "low": None, "high": None}
        mean, low, high = self._interval(metric)
        return {"estimate": mean, "low": low, "high": high}

    def _shown_bad(self, metric: Metric) -> dict[str, Any]:
        of_candidate, bad = self.bad[metric.name]
        log_e = log_odds_e(of_candidate, bad, self.config.split, metric.relative_risk)
        return {"of_candidate": of_candidate, "bad": bad, "log_e": float(log_e)}


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf

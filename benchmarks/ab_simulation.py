"""How often a rollout promotes, rolls back or pauses by mistake, and how soon it finds a truth.

    uv run python benchmarks/ab_simulation.py [--runs 2000] [--units 20000] [--only TEXT] [--jobs N]

Thousands of rollouts at once, by the rules of `deployment.decisions` over the statistics of
`deployment.statistics`: five looks that promote, a look at harm every hundredth of the way, the
guardrails after each bad event. No ramp and no store: the units of the last step. Writes
benchmarks/results/ab_simulation.json; exit 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from bench_io import RESULTS, at_most, bar, finish, head, this_machine

from coding_framework.deployment.ab_testing import ABTestConfig, TestVariant
from coding_framework.deployment.decisions import (
    ENOUGH_UNITS,
    breaks,
    harms,
    look_at,
    ratio_is_broken,
    wins,
)
from coding_framework.deployment.statistics import Effect

CONFIG = ABTestConfig(
    alias="kernels",
    incumbent=TestVariant(name="incumbent", version="a"),
    candidate=TestVariant(name="candidate", version="b"),
)
GUARDRAILS = {"error": 0.002, "attrition": 0.02, "slow": 0.05, "unverified": 0.6, "cheat": 0.01}
HARM_LOOKS = 100
BROKEN_UNITS = 1000
"""A rollout that breaks something is followed for so many units."""

Rate = Callable[[float], float]


def steady(rate: float) -> Rate:
    return lambda _: rate


def ramped(first: float, last: float) -> Rate:
    """A drift in time, seen by the units of a ramp whose five steps last equally long: few come in
    the first ones."""
    enrolled = np.cumsum([0.0, 0.02, 0.1, 0.2, 0.5, 1.0])
    times = np.linspace(0, 1, len(enrolled))
    return lambda t: first + (last - first) * float(np.interp(t * enrolled[-1], enrolled, times))


def drift(first: float, last: float) -> Rate:
    return lambda t: first + (last - first) * t


@dataclass(frozen=True)
class Scenario:
    """Rates as functions of the share of the rollout that is over."""

    name: str
    rate: Rate
    lift: float = 0.0
    """The candidate's rate minus the incumbent's."""
    inflated: bool = False
    """Utilities between .05 and 1, zero where there is no kernel; else 0 or 1."""
    bad: dict[str, float] = field(default_factory=dict)
    """Rates of bad events of the candidate; else those of GUARDRAILS."""
    split: float = CONFIG.split
    """What the router does; what it should do is CONFIG.split."""
    margin: float = 0.0
    """Harm to the goal that is tolerated."""
    broken_off: Literal["cancelled", "refused"] = "cancelled"
    """How a request ends that is not answered."""
    bot: bool = False
    """A unit more that always has a request open; it must move nothing."""
    bars: tuple[tuple[str, str, float], ...] = ()
    """(outcome, "<=" or ">=", share of the rollouts)."""
    share: float = 1.0
    """Of the runs that are asked for."""


NO_EFFECT = (("promoted", "<=", 0.04), ("rolled_back", "<=", 0.05), ("paused", "<=", 0.005))
SCENARIOS = (
    Scenario("base .02", steady(0.02), bars=NO_EFFECT),
    Scenario("base .3", steady(0.3), bars=NO_EFFECT),
    Scenario("base .95", steady(0.95), bars=NO_EFFECT),
    Scenario("drift .30 to .50", drift(0.3, 0.5), bars=NO_EFFECT),
    Scenario("drift .60 to .20", drift(0.6, 0.2), bars=NO_EFFECT),
    Scenario("sine of .1", lambda t: 0.4 + 0.1 * math.sin(28 * math.pi * t), bars=NO_EFFECT),
    Scenario("step", lambda t: 0.3 if t < 0.4 else 0.55, bars=NO_EFFECT),
    Scenario("zero-inflated, drift .2 to .6", drift(0.2, 0.6), inflated=True, bars=NO_EFFECT),
    Scenario("ramp 1 to 50%, drift .30 to .40", ramped(0.3, 0.4), bars=NO_EFFECT),
    Scenario("+2 points", steady(0.3), lift=0.02, bars=(("promoted", ">=", 0.75),), share=0.2),
    Scenario("+3 points", steady(0.3), lift=0.03, bars=(("promoted", ">=", 0.95),), share=0.2),
    Scenario("-5 points", steady(0.3), lift=-0.05, bars=(("rolled_back", ">=", 1.0),), share=0.1),
    Scenario("-5 points, 2 tolerated", steady(0.3), lift=-0.05, margin=0.02, share=0.1),
    Scenario(
        "router 2 points off", steady(0.3), split=0.52, bars=(("paused", ">=", 0.5),), share=0.1
    ),
)


@dataclass
class Rollouts:
    """Many rollouts of one scenario, unit by unit."""

    scenario: Scenario
    runs: int
    units: int
    seed: int

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, len(self.scenario.name)])
        self.live = np.ones(self.runs, bool)
        self.outcome = np.full(self.runs, "inconclusive", dtype="<U12")
        self.ended = np.full(self.runs, self.units)
        self.candidates = np.zeros(self.runs)
        self.bad = {name: np.zeros((2, self.runs)) for name in GUARDRAILS}
        self.effect = Effect()
        self.goal = CONFIG.goal.model_copy(update={"margin": self.scenario.margin})

    def run(self) -> dict[str, Any]:
        for i in range(self.units):
            self.unit(i)
        shares = {
            name: float((self.outcome == name).mean())
            for name in ("promoted", "rolled_back", "paused", "inconclusive")
        }
        of_those = self.ended[self.outcome == "rolled_back"]
        return {
            "scenario": self.scenario.name,
            "runs": self.runs,
            **shares,
            "units_to_rollback_median": float(np.median(of_those)) if len(of_those) else None,
        }

    def unit(self, i: int) -> None:
        """One more unit of each rollout, in the order in which a manager reads its events."""
        arm, values, happened = self.drawn(i)
        closed, every = i + 1, max(1, self.units // HARM_LOOKS)
        self.candidates += arm
        if closed % every == 0:
            self._end(ratio_is_broken(self.candidates, closed, CONFIG.split), "paused", i)
        self._guardrails(i, arm, happened)
        self.effect = self.effect.after(arm, values, CONFIG.split)
        if closed % every == 0:
            enough = np.minimum(self.candidates, closed - self.candidates) >= ENOUGH_UNITS
            alpha = CONFIG.alpha_of(self.goal)
            self._end(enough & harms(self.effect, self.goal, alpha, self.units), "rolled_back", i)
        look = look_at(closed, self.units)
        if look is not None:
            self._end(wins(self.effect, look, CONFIG.alpha), "promoted", i)

    def drawn(self, i: int) -> tuple[Any, Any, dict[str, Any]]:
        """Of each rollout's unit: arm (1: candidate), utility, which bad events it has."""
        scenario = self.scenario
        arm = (self.random.random(self.runs) < scenario.split).astype(float)
        rate = scenario.rate(i / self.units) + scenario.lift * arm
        hit = self.random.random(self.runs) < rate
        size = self.random.uniform(0.05, 1.0, self.runs) if scenario.inflated else 1.0
        happened = {}
        for name, usual in GUARDRAILS.items():
            bad = np.where(arm > 0, scenario.bad.get(name, usual), usual)
            happened[name] = self.random.random(self.runs) < bad
        return arm, hit * size * ~happened["attrition"], happened

    def _guardrails(self, i: int, arm: Any, happened: dict[str, Any]) -> None:
        for metric in CONFIG.metrics:
            if metric.type != "bad_event":
                continue
            of_candidate, total = self.bad[metric.name]
            of_candidate += happened[metric.name] * arm
            total += happened[metric.name]
            asked = np.flatnonzero(happened[metric.name] & (arm > 0) & self.live)
            broken = np.zeros(self.runs, bool)
            broken[asked] = breaks(of_candidate[asked], total[asked], metric, CONFIG)
            self._end(broken, "rolled_back", i)

    def _end(self, which: Any, outcome: str, i: int) -> None:
        ending = self.live & which
        self.outcome[ending] = outcome
        self.ended[ending] = i + 1
        self.live &= ~ending


BROKEN = {
    "errors 0.5": Scenario("errors 50%", steady(0.3), bad={"error": 0.5}),
    "errors 0.1": Scenario("errors 10%", steady(0.3), bad={"error": 0.1}),
    "hang-ups 0.5": Scenario("hang-ups 50%", steady(0.3), bad={"attrition": 0.5}),
    "refusals 0.5": Scenario(
        "refusals 50%", steady(0.3), bad={"attrition": 0.5}, broken_off="refused"
    ),
}


def stops(scenario: Scenario, runs: int, seed: int) -> dict[str, Any]:
    """Units that a candidate which fails so often has served when it is rolled back."""
    rollouts = Rollouts(scenario, runs, BROKEN_UNITS, seed)
    served = np.full(runs, math.inf)
    for i in range(BROKEN_UNITS):
        rollouts.unit(i)
        now = (rollouts.ended == i + 1) & (rollouts.outcome == "rolled_back")
        served[now] = rollouts.candidates[now]
    return {
        "scenario": scenario.name,
        "runs": runs,
        "candidate_units_median": float(np.median(served)),
        "candidate_units_95": float(np.quantile(served, 0.95)),
    }


def sticky(runs: int, seed: int) -> dict[str, Any]:
    """A user's requests are alike (correlation a third) and 8 on average. By unit, as the rollout
    does it, and by request, as it must not; each looked at a hundred times."""
    random = np.random.default_rng(seed)
    units, wrong = 2500, {"by_unit": 0, "by_request": 0}
    for _ in range(runs):
        arm = (random.random(units) < 0.5).astype(float)
        requests = random.geometric(1 / 8, units)
        of_user = random.beta(0.6, 1.4, units)  # correlation 1 / (1 + .6 + 1.4)
        solved = random.binomial(requests, of_user)
        unit, request = Effect(), Effect()
        found = {"by_unit": False, "by_request": False}
        for i in range(units):
            unit = unit.after(arm[i], solved[i] / requests[i], 0.5)
            for k in range(requests[i]):
                request = request.after(arm[i], float(k < solved[i]), 0.5)
            if i > 2 * ENOUGH_UNITS and i % 25 == 0:
                for name, effect in (("by_unit", unit), ("by_request", request)):
                    low, high = effect.interval(0.05, units / 4)
                    found[name] |= bool(low > 0 or high < 0)
        for name in wrong:
            wrong[name] += found[name]
    return {
        "scenario": "sticky users",
        "runs": runs,
        **{name: count / runs for name, count in wrong.items()},
    }


def pooled_ramp(runs: int, seed: int) -> dict[str, Any]:
    """The control: the split grows from 1% to 50% while the base rate grows from .30 to .40, and
    two shares are compared at each of a hundred looks."""
    random = np.random.default_rng(seed)
    units, found = 20_000, np.zeros(runs, bool)
    n, hits = np.zeros((2, runs)), np.zeros((2, runs))
    for i in range(units):
        arm = (random.random(runs) < (0.01, 0.05, 0.1, 0.25, 0.5)[i * 5 // units]).astype(int)
        hit = random.random(runs) < 0.3 + 0.1 * i / units
        n[arm, np.arange(runs)] += 1
        hits[arm, np.arange(runs)] += hit
        if (i + 1) % (units // 100) == 0:
            rate, all_ = hits / np.maximum(n, 1), hits.sum(0) / n.sum(0)
            error = np.sqrt(all_ * (1 - all_) * (1 / np.maximum(n, 1)).sum(0))
            found |= (n.min(0) >= 5) & (np.abs(rate[1] - rate[0]) > 1.96 * error)
    return {"scenario": "pooled test while the split ramps", "runs": runs, "wrong": found.mean()}


def _scenario(name: str, runs: int, units: int) -> dict[str, Any]:
    os.nice(5)
    start, cpu = time.monotonic(), time.process_time()
    if name == "sticky users":
        row = sticky(max(20, runs * 3 // 10), 11)
    elif name == "pooled":
        row = pooled_ramp(max(20, runs // 5), 12)
    elif name in BROKEN:
        row = stops(BROKEN[name], max(20, runs // 4), 13)
    else:
        scenario = next(s for s in SCENARIOS if s.name == name)
        row = Rollouts(scenario, max(20, int(runs * scenario.share)), units, 10).run()
    took = {"s": time.monotonic() - start, "cpu_s": time.process_time() - cpu}
    return {**row, **{name: round(value, 1) for name, value in took.items()}}


def bars_of(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for scenario in SCENARIOS:
        for outcome, sign, target in scenario.bars if scenario.name in rows else ():
            value = rows[scenario.name][outcome]
            holds = value <= target if sign == "<=" else value >= target
            found.append(bar(f"{scenario.name}: {outcome} {sign}", target, value, holds))
    if "-5 points" in rows:
        median = rows["-5 points"]["units_to_rollback_median"]
        found.append(at_most("-5 points: median units to the rollback", 4000, median or math.inf))
    for name in ("errors", "hang-ups", "refusals"):
        if f"{name} 0.5" in rows:
            served = rows[f"{name} 0.5"]["candidate_units_95"]
            found.append(at_most(f"50% {name}: candidate units in 95%", 45, served))
    if "errors 0.1" in rows:
        served = rows["errors 0.1"]["candidate_units_95"]
        found.append(at_most("10% errors: candidate units in 95%", 350, served))
    if "sticky users" in rows:
        value = rows["sticky users"]["by_unit"]
        found.append(at_most("sticky users: wrong by unit", 0.05, value))
    if "pooled" in rows:
        value = float(rows["pooled"]["wrong"])
        found.append(bar("control: the pooled test is wrong", 0.5, value, value > 0.5))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="rollouts a scenario without effect")
    parser.add_argument("--units", type=int, default=20_000, help="units of a rollout")
    parser.add_argument("--only", default="", help="scenarios whose name holds this")
    parser.add_argument("--output", type=Path, help="default: its result file; with --only none")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    machine = this_machine()
    names = [*(s.name for s in SCENARIOS), *BROKEN, "sticky users", "pooled"]
    names = [name for name in names if args.only in name]
    with ProcessPoolExecutor(args.jobs) as workers:
        jobs = {name: workers.submit(_scenario, name, args.runs, args.units) for name in names}
        rows = {}
        for name, job in jobs.items():
            rows[name] = job.result()
            print({k: v for k, v in rows[name].items() if v is not None}, flush=True)
    report = head("ab_simulation", packages=["numpy", "scipy"], machine=machine)
    report |= {"units": args.units, "bars": bars_of(rows), "scenarios": list(rows.values())}
    with TemporaryDirectory() as nowhere:
        usual = Path(nowhere) / "part.json" if args.only else RESULTS / "ab_simulation.json"
        output = args.output or usual
        return 0 if finish(report, output) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Do the real manager and its database decide as `benchmarks/ab_simulation.py` does?

What the simulation drew for each unit of a rollout goes as exposures and outcomes through
`ABTestManager` and a database of its own: the decision, the unit at which it fell and the estimate
must be those of the simulation, and the database must verify.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from ab_simulation import CONFIG, GUARDRAILS, HARM_LOOKS, Rollouts, Scenario

from coding_framework.deployment.ab_testing import ABTestConfig, RampStep
from coding_framework.deployment.manager import ABTestManager, expose
from coding_framework.deployment.outcomes import Observation, Outcome, observation
from coding_framework.deployment.store import DeploymentStore, ExperimentRow, VersionRow
from support.replayed import replayed

NAMES = {
    "PROMOTED": "promoted",
    "ROLLED_BACK": "rolled_back",
    "PAUSED": "paused",
    "STOPPED": "inconclusive",
}
BOT = b"a bot"


class Recorded(Rollouts):
    """Rollouts that keep what they drew."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.draws: list[tuple[Any, Any, dict[str, Any]]] = []
        self.means = np.full(self.runs, np.nan)

    def drawn(self, i: int) -> tuple[Any, Any, dict[str, Any]]:
        found = super().drawn(i)
        self.draws.append(found)
        return found

    def _end(self, which: Any, outcome: str, i: int) -> None:
        ending = self.live & which
        self.means[ending] = np.broadcast_to(self.effect.mean, self.runs)[ending]
        super()._end(which, outcome, i)


def config(scenario: Scenario, units: int) -> ABTestConfig:
    """One step at the whole split; a window that ends with its unit's outcome."""
    metrics = tuple(
        m.model_copy(update={"margin": scenario.margin}) if m.kind == "goal" else m
        for m in CONFIG.metrics
    )
    return CONFIG.model_copy(update={
        "shadow_units": 0, "steps": (RampStep(share=0.5),), "horizon_units": units,
        "window_s": 1e-6, "metrics": metrics, "max_duration_s": 1e9, "freshness_s": 1e9,
    })  # fmt: skip


def through_store(rollouts: Recorded, run: int, folder: Path) -> dict[str, Any]:
    """One of the rollouts through a manager: its decision, the unit, the estimate."""
    with mock.patch("coding_framework.deployment.rollout.observation", _drawn):
        return _through_store(rollouts, run, folder)


def _through_store(rollouts: Recorded, run: int, folder: Path) -> dict[str, Any]:
    store = DeploymentStore(folder / "d.sqlite", clock=lambda: 1_000_000, durable=False)
    with store.transaction() as tx:
        for name in ("a", "b"):
            tx.add_version(VersionRow(name, "{}", name, None, tx.now_us))
        tx.add_endpoint(CONFIG.alias, "a")
        tx.add_audit(
            "operator", "deploy", before=None, after={"alias": CONFIG.alias, "incumbent": "a"},
            reason="", evidence={},
        )  # fmt: skip
    manager = ABTestManager(store)
    experiment = manager.create(config(rollouts.scenario, rollouts.units)).id
    manager.start(experiment)
    moved = None
    every = max(1, rollouts.units // HARM_LOOKS)
    for start in range(0, rollouts.units, every):
        if rollouts.scenario.bot:
            _bot_asks(store, experiment, start // every)
        _units(store, experiment, rollouts, run, start, every)
        moved = manager.act(experiment)
        if moved is not None:
            break
    found = _found(store, moved)
    checked = replayed(store)
    store.close()
    return {**found, "verified": checked.difference is None}


def _units(
    store: DeploymentStore, experiment: str, rollouts: Recorded, run: int, start: int, count: int
) -> None:
    with store.transaction() as tx:
        for i in range(start, min(start + count, rollouts.units)):
            arm, value, happened = rollouts.draws[i]
            variant = "candidate" if arm[run] else "incumbent"
            expose(tx, experiment, i.to_bytes(16, "big"), variant, str(i))
            broken_off = happened["attrition"][run]
            outcome = {
                "status": rollouts.scenario.broken_off if broken_off else "verified",
                "utility": None if broken_off else float(value[run]),
                "bad": [n for n in GUARDRAILS if happened[n][run] and n != "attrition"],
            }
            tx.add_outcome(str(i), json.dumps(outcome))


def _drawn(outcome: Mapping[str, Any], config: ABTestConfig) -> Observation:
    """`observation` of what the simulation drew: a reward and bad events that no one request has
    together."""
    seen = observation(outcome, config)
    drawn = outcome.get("utility")
    values = seen.values if drawn is None else {"utility": drawn}
    return Observation(values, seen.bad | set(outcome.get("bad", ())))


def _bot_asks(store: DeploymentStore, experiment: str, number: int) -> None:
    """Another request of the bot's; the one before it ends, so that one is always open."""
    with store.transaction() as tx:
        expose(tx, experiment, BOT, "candidate", f"bot{number}")
        tx.add_outcome(f"bot{number - 1}", Outcome(status="not_judged").model_dump_json())


def _found(store: DeploymentStore, moved: ExperimentRow | None) -> dict[str, Any]:
    if moved is None:
        return {"outcome": "none"}
    events = list(store.events(moved.id))
    decided = [e for e in events if e.kind == "transition"][-1]
    evidence = json.loads(decided.body)["evidence"]
    units = evidence.get("units") if moved.state != "PAUSED" else None
    if units is None:  # those that came until then
        exposed = (e for e in events if e.kind == "exposure" and e.seq <= evidence["seq"])
        units = len({e.unit for e in exposed} - {BOT})
    return {
        "outcome": NAMES[moved.state],
        "unit": units,
        "estimate": evidence.get("estimate"),
        "reason": moved.reason,
    }


def same(rollouts: Recorded, run: int, found: dict[str, Any]) -> bool:
    """Whether the manager found what the simulation did."""
    estimate = found.get("estimate")
    ended = rollouts.outcome[run] != "inconclusive"
    close = estimate is None or not ended or abs(estimate - rollouts.means[run]) <= 1e-12
    later = abs(found.get("unit", 0) - rollouts.ended[run])
    # a bot is one unit more where the arms' sizes are looked at
    same_end = found["outcome"] == rollouts.outcome[run] and later <= int(rollouts.scenario.bot)
    return bool(same_end and close and found["verified"])


def compare(scenario: Scenario, runs: int, units: int) -> dict[str, Any]:
    """Of one scenario: how many rollouts ended in each way, and those that differ."""
    rollouts = Recorded(scenario, runs, units, 10)
    rollouts.run()
    differing, outcomes = [], dict.fromkeys(NAMES.values(), 0)
    for run in range(runs):
        with TemporaryDirectory() as folder:
            found = through_store(rollouts, run, Path(folder))
        outcomes[found["outcome"]] += 1
        if not same(rollouts, run, found):
            expected = (str(rollouts.outcome[run]), int(rollouts.ended[run]))
            differing.append({"run": run, "found": found, "expected": expected})
    return {**outcomes, "differing": differing}

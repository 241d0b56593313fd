"""Pages of deployments: what each alias stands for, and how a rollout stands and why.

A database is opened to read, page by page, and nothing is written beside it. The figures of a
rollout are found by reading its log as the controller does; how far that has come is kept, so that
a page that is asked for again reads what is new.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coding_framework.deployment.ab_testing import ABTestConfig
from coding_framework.deployment.rollout import Rollout
from coding_framework.deployment.statistics import log_odds_e
from coding_framework.deployment.store import (
    ACTIVE,
    FINAL,
    SERVING,
    AuditRow,
    DeploymentStore,
    Event,
    ExperimentRow,
)
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.store.databases import StorageError
from coding_framework.viewer.charts import Column, Options, chart, options_in
from coding_framework.viewer.library import Library, NotThereError, stamp
from coding_framework.viewer.runs import FoundRun

Query = Mapping[str, str]
SHOWN_EVENTS = 100
_SECOND_US = 1_000_000
_E_RANGE = (-14.0, 28.0)
"""Logarithms of the least and the largest e-value on an axis."""
COMMANDS = {
    "SHADOW": ("pause", "rollback", "stop", "promote --force"),
    "RAMPING": ("pause", "rollback", "stop", "promote --force"),
    "HOLDING": ("pause", "rollback", "stop", "promote --force"),
    "PAUSED": ("resume", "rollback", "stop", "promote --force"),
}
"""What a person may do in a state, as actions of `cuda-rl deploy`."""


@dataclass(slots=True)
class Followed:
    """A rollout as far as its log was read, and how often bad events had happened on the way."""

    rollout: Rollout
    bad: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By metric: closed units of both arms, bad units of the candidate, bad units of both."""

    def read(self, event: Event) -> None:
        rollout = self.rollout
        rollout.read(event)
        for name, (of_candidate, count) in rollout.bad.items():
            told = self.bad.setdefault(name, [])
            if count and (not told or told[-1][2] != count):
                told.append((sum(rollout.counts.closed), of_candidate, count))


class Followers:
    """The rollouts whose pages were looked at. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, str], Followed] = {}

    @contextmanager
    def followed(
        self, store: DeploymentStore, row: ExperimentRow, config: ABTestConfig
    ) -> Iterator[Followed]:
        """The rollout as it stands now, held for the block."""
        key = (str(store.path), store.path.stat().st_ino, row.id)
        with self._lock:
            found = self._known.pop(key, None) or Followed(Rollout(config))
            for event in store.events(row.id, found.rollout.seq):
                found.read(event)
            found.rollout.advance(store.now_us())
            if len(self._known) >= 32:
                self._known.pop(next(iter(self._known)))
            self._known[key] = found
            yield found


_followers = Followers()


def deploy_page(library: Library, query: Query) -> dict[str, Any]:
    """All databases: their aliases, rollouts and versions."""
    return {"databases": [_database(found) for found in library.found("deployment")]}


def _database(found: FoundRun) -> dict[str, Any]:
    try:
        with _opened(found) as store:
            experiments = store.experiments()[::-1]
            active = {row.alias: row for row in experiments if row.state in ACTIVE}
            return {
                "found": found, "fault": "", "endpoints": store.endpoints(), "active": active,
                "rollouts": [(row, _config(row)) for row in experiments[:200]],
                "more": len(experiments) > 200, "versions": store.versions(),
                "now_us": store.now_us(),
            }  # fmt: skip
    except StorageError as e:
        return {"found": found, "fault": one_line(str(e), 400)}


def experiment_page(library: Library, query: Query, experiment: str) -> dict[str, Any]:
    """One rollout: where it stands, what it waits for, its figures, and who did what. Raises
    NotThereError."""
    with _experiment(library, experiment) as (found, store, row, config):
        with _followers.followed(store, row, config) as followed:
            rollout = followed.rollout
            numbers, decision, read = rollout.summary(), rollout.decision(), rollout.seq
            horizon = rollout.horizon
        audit = store.audit(row.id)
        events = list(store.events(row.id, max(0, read - 20 * SHOWN_EVENTS)))[-SHOWN_EVENTS:]
        now = store.now_us()
    last = audit[-1].ts_us if audit else row.created_us
    over = row.state in FINAL
    return {
        "found": found, "row": row, "config": config, "numbers": numbers, "horizon": horizon,
        "decision": None if over else decision, "over": over, "now_us": now,
        "gates": _gates(row, config, numbers), "in_state_s": (now - last) / _SECOND_US,
        "audit": [(entry, _detail(entry)) for entry in audit[::-1]],
        "events": [(event, _told(event)) for event in events[::-1]],
        "commands": [
            f"cuda-rl deploy {action} {row.alias} --database {found.root} --reason TEXT"
            for action in COMMANDS.get(row.state, ())
        ],
        "listens": f"/deploy/experiments/{row.id}/events", "options": options_in(query),
    }  # fmt: skip


def experiment_charts(library: Library, experiment: str, options: Options) -> list[dict[str, Any]]:
    """The confidence sequence of each bounded metric and the e-values, over units. Raises
    NotThereError."""
    with (
        _experiment(library, experiment) as (_, store, row, config),
        _followers.followed(store, row, config) as followed,
    ):
        bad = {name: list(told) for name, told in followed.bad.items()}
        looks = list(followed.rollout.looks)
    made = []
    for metric in config.metrics:
        if metric.type == "bounded_mean":
            mine = [look[2:] for look in looks if look[0] == metric.name]
            floor = -metric.margin / (metric.high - metric.low)
            columns: dict[str, Column] = {
                "candidate less incumbent": [estimate for _, _, estimate, _, _ in mine],
                "low": [low for _, _, _, low, _ in mine],
                "high": [high for _, _, _, _, high in mine],
                "no difference": [0.0] * len(mine),
            }
            if floor:
                columns["harm that is tolerated"] = [floor] * len(mine)
            share = 1 - config.alpha_of(metric)
            made.append(chart(
                f"metric-{metric.name}", f"{metric.name} ({metric.kind})",
                f"better upwards, with the {share:.0%} confidence sequence", columns,
                {"bands": [(1, 2)], "levels": ("no difference", "harm that is tolerated")},
                [a + b for a, b, *_ in mine], "closed units",
                replace(options, smooth=0.0, log=False),
            ))  # fmt: skip
    made += [_e_chart(config, name, told, options) for name, told in bad.items()]
    return [c for c in made if c is not None]


def experiment_versions(library: Library, experiment: str) -> Callable[[], Mapping[str, str]]:
    """What the page of a rollout is told of by events."""
    with _experiment(library, experiment) as (found, *_):
        files = (found.root, found.root.with_name(f"{found.root.name}-wal"))
    return lambda: {"deploy": ",".join(map(stamp, files))}


@contextmanager
def _opened(found: FoundRun) -> Iterator[DeploymentStore]:
    with closing(DeploymentStore(found.root, read_only=True)) as store:
        yield store


@contextmanager
def _experiment(
    library: Library, experiment: str
) -> Iterator[tuple[FoundRun, DeploymentStore, ExperimentRow, ABTestConfig]]:
    for found in library.found("deployment"):
        try:
            with _opened(found) as store:
                row = next((e for e in store.experiments() if e.id == experiment), None)
                if row is not None:
                    yield found, store, row, _config(row)
                    return
        except StorageError as e:
            raise UsageError(str(e)) from e
    raise NotThereError("there is no rollout of that id here")


def _config(row: ExperimentRow) -> ABTestConfig:
    return ABTestConfig.stored(row.config)


def _standing(here: bool, past: bool) -> str:
    return "here" if here else "past" if past else "ahead"


def _gates(
    row: ExperimentRow, config: ABTestConfig, numbers: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """What each step asks for, and what the next one waits for: (step, asked, standing)."""
    here = row.state if row.state != "PAUSED" else (row.resume_state or "")
    gates = []
    if config.shadow_units:
        asked = f"{config.shadow_units:,} pairs, and no harm among them"
        gates.append(("shadow", asked, _standing(here == "SHADOW", here != "SHADOW")))
    last = len(config.steps) - 1
    for i, step in enumerate(config.steps):
        asked = f"{step.min_dwell_s:,.0f} s and {step.min_units:,} closed units of the candidate"
        if i == last:
            asked = f"a win at a planned look, or {numbers['horizon_units']:,} closed units"
        over = row.state == "PROMOTED" or row.step > i
        standing = _standing(here in SERVING and row.step == i, over)
        gates.append((f"{step.share:.0%} of the traffic", asked, standing))
    return gates


def _e_chart(
    config: ABTestConfig, name: str, told: list[tuple[int, int, int]], options: Options
) -> dict[str, Any] | None:
    """e-values against "not more often than allowed"; the alarm rings at 1 / alpha."""
    metric = next(m for m in config.metrics if m.name == name)
    log_e = log_odds_e(
        np.array([k for _, k, _ in told], float), np.array([n for *_, n in told], float),
        config.split, metric.relative_risk,
    )  # fmt: skip
    values: Column = np.exp(np.clip(log_e, *_E_RANGE)).tolist()
    columns: dict[str, Column] = {
        "e-value": values, "alarm": [1 / config.alpha_of(metric)] * len(told)
    }  # fmt: skip
    x = [float(n) for _, _, n in told]
    title = f"{name} ({metric.kind}): too often?"
    return chart(
        f"e-{name}",
        title,
        "e-value",
        columns,
        {"log": True, "levels": ("alarm",)},
        x,
        "units with one",
        options,
    )


def _detail(entry: AuditRow) -> str:
    """What changed, in a line."""
    before, after = json.loads(entry.before) or {}, json.loads(entry.after) or {}
    changed = [
        f"{name} {before.get(name, '–')} → {value}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return one_line(", ".join(changed), 200)


def _told(event: Event) -> str:
    """What an event says, in a line; units stay as unreadable as they are stored."""
    body = json.loads(event.body)
    if event.kind == "outcome":
        speed = body.get("speedup")
        return str(body.get("status", "")) + (f", {speed:.3g}×" if speed else "")
    if event.kind == "transition":
        return f"{body['from']} → {body['to']}: {one_line(str(body['reason']), 200)}"
    if event.kind == "shadow_pair":
        return " / ".join(
            str((body.get(v) or {}).get("status")) for v in ("incumbent", "candidate")
        )
    return "" if event.kind == "exposure" else one_line(event.body, 200)

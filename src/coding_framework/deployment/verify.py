"""Every decision found again: the log is read by one process, from its start, and each transition
of the controller's must be what the events before it demand, equal to the bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coding_framework.deployment.ab_testing import (
    ABTestConfig,
    Endpoint,
    Experiment,
    TrafficRouter,
)
from coding_framework.deployment.manager import CONTROLLER
from coding_framework.deployment.rollout import Decision, Rollout
from coding_framework.deployment.store import (
    AuditRow,
    DeploymentStore,
    Event,
    ExperimentRow,
    canonical,
)


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found. `difference`: the first one, in a sentence; None: all is as it must be."""

    experiments: int
    events: int
    decisions: int
    audit_rows: int
    difference: str | None = None


class _DifferenceError(Exception):
    """The first difference, in a sentence."""


def verify(store: DeploymentStore, experiment: str | None = None) -> Verified:
    """Recompute one experiment, or all, and check the audit chain. Raises StorageError."""
    rows = [store.experiment(experiment)] if experiment else store.experiments()
    events = decisions = checked = 0
    difference = None
    try:
        audit = store.audit()
        checked = _check_chain(audit)
        for row in rows:
            read, decided = _check_experiment(store, row, audit)
            events, decisions = events + read, decisions + decided
        if experiment is None:
            _check_versions(store, audit)
            _check_endpoints(store, audit)
    except _DifferenceError as e:
        difference = str(e)
    return Verified(len(rows), events, decisions, checked, difference)


def _check_chain(audit: list[AuditRow]) -> int:
    before = AuditRow(0, 0, "", "", None, "", "", "", "", "", "0" * 64)
    for row in audit:
        if row.seq != before.seq + 1 or row.prev_sha256 != before.sha256:
            raise _DifferenceError(f"row {row.seq} of the audit does not follow row {before.seq}")
        if row.digest() != row.sha256:
            raise _DifferenceError(f"row {row.seq} of the audit was changed after it was written")
        before = row
    return len(audit)


def _check_experiment(
    store: DeploymentStore, row: ExperimentRow, audit: list[AuditRow]
) -> tuple[int, int]:
    """Events and decisions of one experiment."""
    if hashlib.sha256(row.config.encode()).hexdigest() != row.config_sha256:
        raise _DifferenceError(f"the config of {row.id} was changed after it was created")
    salts_are_known = _check_config(row, audit)
    rollout = Rollout(ABTestConfig.stored(row.config))
    audited = _by_event(row, audit)
    read = decided = 0
    for event in store.events(row.id):
        read += 1
        if event.kind == "transition":
            decided += _check_transition(rollout, event, audited)
        elif event.kind == "exposure" and not salts_are_known:
            _check_arm(row, rollout, event)
        try:
            rollout.read(event)
        except (KeyError, ValueError) as e:
            raise _DifferenceError(f"event {event.seq} of {row.id} does not fit the log") from e
    if audited:
        raise _DifferenceError(f"the log of {row.id} lacks the transition {next(iter(audited))}")
    if (rollout.state, rollout.step) != (row.state, row.step):
        raise _DifferenceError(
            f"{row.id} is {row.state} at step {row.step}, and by its log {rollout.state} at step "
            f"{rollout.step}"
        )
    return read, decided


def _check_config(row: ExperimentRow, audit: list[AuditRow]) -> bool:
    """Whether the audit knows the salts: of an experiment of before it does not."""
    made = [a for a in audit if a.experiment == row.id and a.action == "create"]
    told = json.loads(made[0].evidence) if len(made) == 1 else {}
    if told.get("config_sha256") != row.config_sha256:
        raise _DifferenceError(f"the config of {row.id} is not the one it was created with")
    if told.get("salts_sha256", row.salts_sha256) != row.salts_sha256:
        raise _DifferenceError(f"the salts of {row.id} are not those it was created with")
    return "salts_sha256" in told


def _check_arm(row: ExperimentRow, rollout: Rollout, event: Event) -> None:
    """The salts must deal each unit as it was dealt."""
    config, unit = rollout.config, event.unit or b""
    dealt = Experiment(
        id=row.id, salt_enrol=row.salt_enrol, salt_arm=row.salt_arm,
        enrolment=config.enrolment(rollout.step), split=config.split,
        candidate=config.candidate.version,
    )  # fmt: skip
    endpoint = Endpoint(incumbent=config.incumbent.version, generation=0, experiment=dealt)
    found = TrafficRouter({row.alias: endpoint}).route(row.alias, unit)
    if (found.experiment, found.variant) != (row.id, event.variant):
        raise _DifferenceError(
            f"the salts of {row.id} do not deal the unit of event {event.seq} as it was dealt"
        )


def _by_event(row: ExperimentRow, audit: list[AuditRow]) -> dict[str, AuditRow]:
    """The audit's rows of an experiment's transitions, by the id of their event."""
    found = {}
    for entry in audit:
        event = json.loads(entry.evidence).get("event") if entry.experiment == row.id else None
        if event is not None:
            found[event] = entry
    return found


def _check_transition(rollout: Rollout, event: Event, audited: dict[str, AuditRow]) -> int:
    """1 where the transition is a decision of the controller's, found again; 0 for a person's."""
    body, entry = json.loads(event.body), audited.pop(event.id, None)
    where = f"transition {event.id} (event {event.seq})"
    told = entry and (entry.actor, entry.action, entry.reason, json.loads(entry.after)["state"])
    if told != (body["actor"], body["action"], body["reason"], body["to"]):
        raise _DifferenceError(f"{where} and the audit's row of it differ")
    if body["from"] != rollout.state:
        raise _DifferenceError(
            f"{where} leaves {body['from']}, and the log stands at {rollout.state}"
        )
    if body["actor"] != CONTROLLER:
        return 0
    rollout.advance(event.ts_us)
    decision = rollout.decision()
    if decision is None:
        raise _DifferenceError(f"{where} to {body['to']}: the log before it demands nothing")
    for name, said, found in _compared(body, decision):
        if canonical(said) != canonical(found):
            raise _DifferenceError(f"{where}: {name} is {said}, and by the log {found}")
    return 1


def _compared(body: Mapping[str, Any], decision: Decision) -> Iterator[tuple[str, Any, Any]]:
    yield "the state", body["to"], decision.to
    yield "the reason", body["reason"], decision.reason
    if decision.step is not None:
        yield "the step", body["step"], decision.step
    keys = sorted({*body["evidence"], *decision.evidence})
    for key in keys:
        yield f"the evidence {key!r}", body["evidence"].get(key), decision.evidence.get(key)


def _check_versions(store: DeploymentStore, audit: list[AuditRow]) -> None:
    """Each version is what was registered."""
    known = {row.id: row for row in store.versions()}
    for entry in audit:
        if entry.action == "register":
            name = json.loads(entry.after)["version"]
            spec = json.dumps(json.loads(known[name].spec), sort_keys=True) if name in known else ""
            digest = hashlib.sha256(spec.encode()).hexdigest()
            if digest != json.loads(entry.evidence)["digest"]:
                raise _DifferenceError(f"version {name} is not the one that was registered")


def _check_endpoints(store: DeploymentStore, audit: list[AuditRow]) -> None:
    """Each alias stands for what the last row of the audit about it says."""
    of_experiment = {row.id: row.alias for row in store.experiments()}
    last: dict[str, str] = {}
    for entry in audit:
        after = json.loads(entry.after)
        alias = of_experiment.get(entry.experiment or "") or (after or {}).get("alias")
        if alias and after.get("incumbent"):
            last[alias] = after["incumbent"]
    for endpoint in store.endpoints():
        if last.get(endpoint.alias) != endpoint.incumbent:
            raise _DifferenceError(
                f"{endpoint.alias} stands for {endpoint.incumbent}, and by the audit for "
                f"{last.get(endpoint.alias)}"
            )

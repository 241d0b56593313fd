"""Every decision of a deployment database found again: its log is read from the start, and each
transition of the controller's must be what the events before it demand, equal to the bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from coding_framework.deployment.ab_testing import ABTestConfig
from coding_framework.deployment.manager import CONTROLLER
from coding_framework.deployment.rollout import Decision, Rollout
from coding_framework.deployment.store import DeploymentStore, Event, ExperimentRow, canonical


class Replayed(NamedTuple):
    """What was found. `difference`: the first one, in a sentence; None: all is as it must be."""

    decisions: int
    difference: str | None = None


class _DifferenceError(Exception):
    """The first difference, in a sentence."""


def replayed(store: DeploymentStore) -> Replayed:
    """Find every decision again, and the state of every rollout and alias."""
    decisions = 0
    try:
        for row in store.experiments():
            decisions += _check_experiment(store, row)
        _check_endpoints(store)
    except _DifferenceError as e:
        return Replayed(decisions, str(e))
    return Replayed(decisions)


def _check_experiment(store: DeploymentStore, row: ExperimentRow) -> int:
    """Decisions of one experiment."""
    rollout, decided = Rollout(ABTestConfig.stored(row.config)), 0
    moves = [e for e in store.audit(row.id) if e.action != "create"]
    for event in store.events(row.id):
        if event.kind == "transition":
            entry, body = moves.pop(0), json.loads(event.body)
            told = entry.actor, entry.action, entry.reason, json.loads(entry.after)["state"]
            if told != (body["actor"], body["action"], body["reason"], body["to"]):
                raise _DifferenceError(f"{event.id} and the history's row of it differ")
            decided += _check_transition(rollout, event)
        rollout.read(event)
    if moves:
        raise _DifferenceError(f"the log of {row.id} lacks the transition {moves[0]}")
    if (rollout.state, rollout.step) != (row.state, row.step):
        raise _DifferenceError(
            f"{row.id} is {row.state} at step {row.step}, and by its log {rollout.state} at step "
            f"{rollout.step}"
        )
    return decided


def _check_transition(rollout: Rollout, event: Event) -> int:
    """1 where the transition is a decision of the controller's, found again; 0 for a person's."""
    body = json.loads(event.body)
    where = f"transition {event.id} (event {event.seq})"
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
    yield "the evidence", body["evidence"], decision.evidence


def _check_endpoints(store: DeploymentStore) -> None:
    """Each alias stands for what the last row of the history about it says."""
    of_experiment = {row.id: row.alias for row in store.experiments()}
    last: dict[str, str] = {}
    for entry in store.audit():
        after = json.loads(entry.after)
        alias = of_experiment.get(entry.experiment or "") or (after or {}).get("alias")
        if alias and after.get("incumbent"):
            last[alias] = after["incumbent"]
    for endpoint in store.endpoints():
        if last.get(endpoint.alias) != endpoint.incumbent:
            raise _DifferenceError(
                f"{endpoint.alias} stands for {endpoint.incumbent}, and by the history for "
                f"{last.get(endpoint.alias)}"
            )

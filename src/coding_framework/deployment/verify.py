"""Every decision found again: the log is read by one process, from its start, and each transition
of the controller's must be what the events before it demand, equal to the bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coding_framework.deployment.ab_testing import ABTestConfig
from coding_framework.deployment.manager import CONTROLLER
from coding_framework.deployment.rollout import Decision, Rollout
from coding_framework.deployment.store import DeploymentStore, Event, ExperimentRow, canonical


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found. `difference`: the first one, in a sentence; None: all is as it must be."""

    experiments: int
    events: int
    decisions: int
    difference: str | None = None


class _DifferenceError(Exception):
    """The first difference, in a sentence."""


def verify(store: DeploymentStore, experiment: str | None = None) -> Verified:
    """Recompute one experiment, or all. Raises StorageError."""
    rows = [store.experiment(experiment)] if experiment else store.experiments()
    events = decisions = 0
    difference = None
    try:
        for row in rows:
            read, decided = _check_experiment(store, row)
            events, decisions = events + read, decisions + decided
    except _DifferenceError as e:
        difference = str(e)
    return Verified(len(rows), events, decisions, difference)


def _check_experiment(store: DeploymentStore, row: ExperimentRow) -> tuple[int, int]:
    """Events and decisions of one experiment."""
    if hashlib.sha256(row.config.encode()).hexdigest() != row.config_sha256:
        raise _DifferenceError(f"the config of {row.id} was changed after it was created")
    rollout = Rollout(ABTestConfig.stored(row.config))
    read = decided = 0
    for event in store.events(row.id):
        read += 1
        if event.kind == "transition":
            decided += _check_transition(rollout, event)
        try:
            rollout.read(event)
        except (KeyError, ValueError) as e:
            raise _DifferenceError(f"event {event.seq} of {row.id} does not fit the log") from e
    if (rollout.state, rollout.step) != (row.state, row.step):
        raise _DifferenceError(
            f"{row.id} is {row.state} at step {row.step}, and by its log {rollout.state} at step "
            f"{rollout.step}"
        )
    return read, decided


def _check_transition(rollout: Rollout, event: Event) -> int:
    """1 where the transition is a decision of the controller's, found again; 0 for a person's."""
    body, where = json.loads(event.body), f"transition {event.id} (event {event.seq})"
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

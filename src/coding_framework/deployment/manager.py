"""`ABTestManager`: experiments in the deployment database, moved by people and by their own log.

Every move is one transaction: compare-and-set on the state, the `transition` event, the row of the
audit. A move of the controller's is the decision of `Rollout` over the log up to the event before
the transition.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.deployment.ab_testing import ABTestConfig
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.rollout import Decision, Rollout
from coding_framework.deployment.statistics import units_to_plan
from coding_framework.deployment.store import (
    FINAL,
    SERVING,
    ConflictError,
    DeploymentStore,
    ExperimentRow,
    Transaction,
    canonical,
)
from coding_framework.errors import UsageError
from coding_framework.types import Record

CONTROLLER = "controller"
_SPREAD = 0.5
"""Largest standard deviation of anything in [0, 1]: the plan where nothing is known."""


class Evaluation(Record):
    """Where an experiment stands, for people and programs. Maker: `ABTestManager.evaluate`."""

    experiment: str
    alias: str
    state: str
    step: int
    enrolment: float
    generation: int
    reason: str | None
    decision: str | None
    """What the log demands and nobody has done yet: a state; None: nothing."""
    decision_reason: str | None
    numbers: dict[str, Any]
    """Counts, estimates with intervals, e-values, the next gate (`Rollout.summary`)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest rollout of an alias, for metrics. Maker: `Controller`."""

    row: ExperimentRow
    evaluation: Evaluation | None
    """None: it is over, or a draft."""


class ABTestManager:
    """Creates, moves and evaluates experiments. Any number of processes may have one each."""

    def __init__(self, store: DeploymentStore) -> None:
        self.store = store
        self._lock = threading.RLock()
        self._rollouts: dict[str, Rollout] = {}

    # --- life of an experiment ------------------------------------------------------------------

    def create(self, config: ABTestConfig, actor: str = "operator") -> ExperimentRow:
        """A draft, with what the config leaves open filled in. Raises UsageError where the alias
        does not stand for the incumbent, or a version is unknown."""
        endpoint = self.store.endpoint(config.alias)
        for variant in (config.incumbent, config.candidate):
            self.store.version(variant.version)  # raises
        if endpoint.incumbent != config.incumbent.version:
            raise UsageError(
                f"{config.alias} stands for {endpoint.incumbent} and not for "
                f"{config.incumbent.version}: start the rollout from that version"
            )
        config = self._completed(config)
        row = ExperimentRow(
            id=f"exp-{uuid.uuid4().hex[:12]}", alias=config.alias, config=config.model_dump_json(),
            salt_enrol=secrets.token_hex(16), salt_arm=secrets.token_hex(16), state="DRAFT",
            resume_state=None, step=0, enrolment=0.0, generation=0, reason=None,
            created_us=self.store.now_us(), ended_us=None,
        )  # fmt: skip
        with self.store.transaction() as tx:
            tx.add_experiment(row)
            tx.add_audit(
                actor, "create", before=None, after={"state": "DRAFT"}, reason="", evidence={},
                experiment=row.id,
            )  # fmt: skip
        return row

    def start(
        self,
        experiment: str,
        *,
        actor: str = "operator",
        reason: str = "",
        evidence: Mapping[str, Any] | None = None,
    ) -> ExperimentRow:
        """From draft, past its gate, into the shadow or the ramp. evidence: of the gate."""
        row = self._require(experiment, ("DRAFT",), "start")
        first = "SHADOW" if self.config(row).shadow_units else "RAMPING"
        gate = Decision("GATED", reason, dict(evidence or {}))
        with self.store.transaction() as tx:
            gated = self._move(tx, row, gate, "gate", actor)
            return self._move(tx, gated, Decision(first, reason, {}), "start", actor)

    def pause(self, experiment: str, reason: str, actor: str = "operator") -> ExperimentRow:
        """The incumbent serves everybody until `resume`."""
        row = self._require(experiment, ("SHADOW", *SERVING), "pause")
        return self._by_hand(row, "pause", "PAUSED", actor, reason)

    def resume(self, experiment: str, reason: str, actor: str = "operator") -> ExperimentRow:
        """Back to where it was. Raises UsageError where it was paused since a version changed."""
        row = self._require(experiment, ("PAUSED",), "resume")
        if (row.reason or "").startswith("config_changed"):
            raise UsageError(
                f"experiment {row.id} was paused since a version changed: what was seen before and "
                "after must not be mixed; stop it and start another one"
            )
        return self._by_hand(row, "resume", row.resume_state or "RAMPING", actor, reason)

    def promote(
        self, experiment: str, reason: str, actor: str = "operator", *, force: bool = False
    ) -> ExperimentRow:
        """The candidate becomes the incumbent. Before the rollout's own decision only by force."""
        row = self._require(experiment, ("SHADOW", *SERVING, "PAUSED"), "promote")
        if not force:
            raise UsageError(
                f"experiment {row.id} has not decided yet ({row.state}): wait for it, or say "
                "--force, which is written down as a decision of yours"
            )
        return self._by_hand(row, "promote", "PROMOTED", actor, reason, {"force": True})

    def rollback(self, experiment: str, reason: str, actor: str = "operator") -> ExperimentRow:
        """The candidate serves nobody from now on."""
        row = self._require(experiment, ("SHADOW", *SERVING, "PAUSED"), "roll back")
        return self._by_hand(row, "rollback", "ROLLED_BACK", actor, reason)

    def stop(self, experiment: str, reason: str, actor: str = "operator") -> ExperimentRow:
        """End without a decision; the incumbent stays."""
        row = self._require(experiment, ("DRAFT", "SHADOW", *SERVING, "PAUSED"), "stop")
        return self._by_hand(row, "stop", "STOPPED", actor, reason)

    def config(self, row: ExperimentRow) -> ABTestConfig:
        return ABTestConfig.stored(row.config)

    # --- evaluation -----------------------------------------------------------------------------

    def observe(self, experiment: str) -> Evaluation:
        """`evaluate` as of the newest event, of what this process has read already and what is new:
        for metrics, which are asked for again and again. It does not move the time on: an event
        that another process is just writing may have an earlier one."""
        with self._lock:
            row = self.store.experiment(experiment)
            return _evaluation(row, self._caught_up(experiment))

    def evaluate(self, experiment: str) -> Evaluation:
        """Where it stands by its log and the time; nothing is changed."""
        row = self.store.experiment(experiment)
        rollout = Rollout(self.config(row))
        for event in self.store.events(experiment):
            rollout.read(event)
        rollout.advance(self.store.now_us())
        return _evaluation(row, rollout)

    def act(self, experiment: str) -> ExperimentRow | None:
        """Read what is new and do what the log demands; the experiment where it moved, else None.

        One caller at a time for speed (`Controller`); more are safe: one of them moves it.
        """
        with self._lock:
            try:
                rollout = self._caught_up(experiment)
                with self.store.transaction() as tx:
                    moved = self._act(tx, experiment, rollout)
            except BaseException:
                self._rollouts.pop(experiment, None)  # it may have read what was undone
                raise
            if moved is not None and moved.state in FINAL:
                del self._rollouts[experiment]
            return moved

    def _act(self, tx: Transaction, experiment: str, rollout: Rollout) -> ExperimentRow | None:
        _read(rollout, tx, experiment)
        for request in rollout.lost_requests():
            tx.add_outcome(request, Outcome(status="lost").model_dump_json())
        _read(rollout, tx, experiment)
        row, decision = tx.experiment(experiment), rollout.decision()
        moved = None
        if decision is not None and row.state == rollout.state:
            moved = self._move(tx, row, decision, "decide", CONTROLLER)
            _read(rollout, tx, experiment)
        return moved

    def _caught_up(self, experiment: str) -> Rollout:
        """The rollout as of now, from memory and what is new in the log."""
        rollout = self._rollouts.get(experiment)
        if rollout is None:
            config = self.config(self.store.experiment(experiment))
            rollout = self._rollouts[experiment] = Rollout(config)
        for event in self.store.events(experiment, rollout.seq):
            rollout.read(event)
        return rollout

    # --- moves ----------------------------------------------------------------------------------

    def _require(self, experiment: str, states: Sequence[str], what: str) -> ExperimentRow:
        row = self.store.experiment(experiment)
        if row.state not in states:
            over = ": it is over, start another one" if row.state in FINAL else ""
            raise ConflictError(f"cannot {what} experiment {row.id}, which is {row.state}{over}")
        return row

    def _by_hand(
        self,
        row: ExperimentRow,
        action: str,
        to: str,
        actor: str,
        reason: str,
        evidence: dict[str, Any] | None = None,
    ) -> ExperimentRow:
        with self.store.transaction() as tx:
            return self._move(tx, row, Decision(to, reason, evidence or {}), action, actor)

    def _move(
        self, tx: Transaction, row: ExperimentRow, decision: Decision, action: str, actor: str
    ) -> ExperimentRow:
        """The one place where an experiment changes its state."""
        to, config = decision.to, self.config(row)
        step = row.step if decision.step is None else decision.step
        if to == "RAMPING" and step == len(config.steps) - 1:
            to = "HOLDING"
        over, paused = to in FINAL, to == "PAUSED"
        kept = row.enrolment if paused else 0.0
        moved = tx.move_experiment(
            row, state=to, step=step, reason=decision.reason or None,
            resume_state=row.state if paused else None,
            enrolment=config.enrolment(step) if to in SERVING else kept,
            ended_us=tx.now_us if over else None,
        )  # fmt: skip
        incumbent = config.candidate.version if to == "PROMOTED" else None
        endpoint = tx.endpoint(row.alias)
        if to == "PROMOTED" and endpoint.incumbent != config.incumbent.version:
            raise ConflictError(
                f"{row.alias} stands for {endpoint.incumbent} by now: start another rollout"
            )
        tx.move_endpoint(endpoint, incumbent)
        body = {
            "action": action, "actor": actor, "from": row.state, "to": to, "step": step,
            "resume_state": moved.resume_state, "reason": decision.reason,
            "reason_before": row.reason, "evidence": decision.evidence,
            "generation": moved.generation,
        }  # fmt: skip
        tx.add_event(
            f"{row.id}:t{moved.generation}", "transition", canonical(body), experiment=row.id
        )
        tx.add_audit(
            actor, action, experiment=row.id, reason=decision.reason,
            before={"state": row.state, "step": row.step, "incumbent": endpoint.incumbent},
            after={"state": to, "step": step, "incumbent": incumbent or endpoint.incumbent},
            evidence=decision.evidence,
        )  # fmt: skip
        return moved

    def _completed(self, config: ABTestConfig) -> ABTestConfig:
        """With the horizon."""
        if config.horizon_units is not None:
            return config
        units = units_to_plan((_SPREAD, _SPREAD), config.mde, config.power, config.alpha)
        return config.model_copy(update={"horizon_units": units})


def _evaluation(row: ExperimentRow, rollout: Rollout) -> Evaluation:
    found = rollout.decision()
    return Evaluation(
        experiment=row.id, alias=row.alias, state=row.state, step=row.step,
        enrolment=row.enrolment, generation=row.generation, reason=row.reason,
        decision=found and found.to, decision_reason=found and found.reason,
        numbers=rollout.summary(),
    )  # fmt: skip


def _read(rollout: Rollout, tx: Transaction, experiment: str) -> None:
    """All that is in the log, and the time."""
    for event in tx.events(experiment, rollout.seq):
        rollout.read(event)
    rollout.advance(tx.now_us)


def expose(tx: Transaction, experiment: str, unit: bytes, variant: str, request: str) -> bool:
    """Write an exposure. False: the experiment does not serve now, or the request is another arm's;
    then the answer must not be the candidate's. A request that is sent again keeps its exposure."""
    if tx.state_of(experiment) not in SERVING:
        return False
    added = tx.add_event(
        f"{request}:e", "exposure", "{}", experiment=experiment, unit=unit, variant=variant,
        request=request,
    )  # fmt: skip
    if added:
        return True
    known = tx.event(f"{request}:e")  # a client's retry
    told = known and (known.experiment, known.unit, known.variant)
    return told == (experiment, unit, variant)


def add_pair(
    tx: Transaction,
    experiment: str,
    unit: bytes,
    request: str,
    incumbent: Outcome,
    candidate: Outcome,
) -> bool:
    """Write both versions' outcomes of one request in the shadow. False: it is over, or written."""
    if tx.state_of(experiment) != "SHADOW":
        return False
    body = {
        "incumbent": incumbent.model_dump(mode="json"),
        "candidate": candidate.model_dump(mode="json"),
    }
    return tx.add_event(
        f"{request}:s", "shadow_pair", canonical(body), experiment=experiment, unit=unit,
        request=request,
    )  # fmt: skip

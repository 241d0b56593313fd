"""`DeploymentManager`: which versions there are, what each alias stands for, and their rollouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from coding_framework.deployment.ab_testing import ABTestConfig, TestVariant
from coding_framework.deployment.manager import ABTestManager, Evaluation
from coding_framework.deployment.store import (
    ConflictError,
    DeploymentStore,
    EndpointRow,
    ExperimentRow,
    VersionRow,
    canonical,
)
from coding_framework.deployment.versions import VersionSpec
from coding_framework.errors import UsageError, first_complaint
from coding_framework.evaluation.compare import compare_runs
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.types import Record

GATE_LOSS = -0.02
"""A candidate whose pass@1 may be no lower than this, by the end of its interval, is tried out."""

_TEXT, _JSON = ("actor", "action", "experiment", "reason"), ("before", "after", "evidence")


class Status(Record):
    """What an alias stands for, and its rollout."""

    alias: str
    incumbent: str
    previous: str | None
    generation: int
    rollout: Evaluation | None


class DeploymentManager:
    """What an operator does by `cuda-rl deploy`."""

    def __init__(self, store: DeploymentStore) -> None:
        self.store = store
        self.experiments = ABTestManager(store)

    # --- versions -------------------------------------------------------------------------------

    def register_version(
        self,
        version: str,
        spec: VersionSpec,
        evaluation: Sequence[SampleRecord] = (),
        actor: str = "operator",
    ) -> VersionRow:
        """Keep a version, with the samples of its evaluation. The same again with an evaluation
        adds that. Raises ConflictError where the name or the content is another version's."""
        known = {row.id: row for row in self.store.versions()}.get(version)
        samples = [sample.model_dump(mode="json") for sample in evaluation]
        told = canonical(samples) if samples else None
        if known is not None and known.digest == spec.digest and told is None:
            return known
        with self.store.transaction() as tx:
            if known is None:
                row = VersionRow(
                    id=version, spec=spec.model_dump_json(), digest=spec.digest, evaluation=told,
                    created_us=tx.now_us,
                )  # fmt: skip
                tx.add_version(row)
            elif known.digest != spec.digest:
                raise ConflictError(
                    f"version {version} is registered with another content, and a version never "
                    "changes: choose another name"
                )
            else:
                tx.set_evaluation(version, str(told))
            tx.add_audit(
                actor, "register", before=None, after={"version": version}, reason="",
                evidence={"digest": spec.digest},
            )  # fmt: skip
        return self.store.version(version)

    def spec(self, version: str) -> VersionSpec:
        """Raises UsageError for an unknown one."""
        return VersionSpec.model_validate_json(self.store.version(version).spec)

    # --- aliases --------------------------------------------------------------------------------

    def deploy(self, alias: str, version: str, actor: str = "operator") -> EndpointRow:
        """The first version of a new alias. Raises ConflictError where there is one."""
        self.store.version(version)  # raises
        if any(row.alias == alias for row in self.store.endpoints()):
            raise ConflictError(
                f"{alias} stands for a version already: try another one out with `cuda-rl deploy "
                f"start {alias} VERSION`"
            )
        with self.store.transaction() as tx:
            row = tx.add_endpoint(alias, version)
            tx.add_audit(
                actor, "deploy", before=None, after={"alias": alias, "incumbent": version},
                reason="", evidence={},
            )  # fmt: skip
        return row

    def rollback(
        self, alias: str, reason: str, to: str | None = None, actor: str = "operator"
    ) -> EndpointRow:
        """An active rollout ends and its candidate serves nobody; without one, or with `to`, the
        alias stands for its previous version, or for `to`. No model is loaded: each
        version is still there."""
        endpoint, active = self.store.endpoint(alias), self.store.active_experiment(alias)
        if to is not None:
            self.store.version(to)  # raises, before anything changes
        if active is not None:
            self.experiments.rollback(active.id, reason, actor)
            if to is None or to == endpoint.incumbent:
                return self.store.endpoint(alias)
        target = to or endpoint.previous
        if target is None:
            raise UsageError(
                f"{alias} has no previous version and no rollout: say which with --to VERSION"
            )
        with self.store.transaction() as tx:
            now = tx.endpoint(alias)
            if now.incumbent != endpoint.incumbent:
                raise ConflictError(f"{alias} was changed meanwhile: look at its status again")
            row = tx.move_endpoint(now, target)
            tx.add_audit(
                actor, "put_back", before={"alias": alias, "incumbent": endpoint.incumbent},
                after={"alias": alias, "incumbent": target}, reason=reason, evidence={},
            )  # fmt: skip
        return row

    def status(self, alias: str) -> Status:
        endpoint, active = self.store.endpoint(alias), self.store.active_experiment(alias)
        found = active or next(iter(reversed(self.store.experiments(alias))), None)
        return Status(
            alias=alias, incumbent=endpoint.incumbent, previous=endpoint.previous,
            generation=endpoint.generation,
            rollout=self.experiments.evaluate(found.id) if found else None,
        )  # fmt: skip

    def history(self, alias: str | None = None) -> list[dict[str, Any]]:
        """Every change, oldest first, with who and why; of one alias, or all."""
        own = {row.id: row.alias for row in self.store.experiments()}
        found = []
        for row in self.store.audit():
            at = datetime.fromtimestamp(row.ts_us / 1e6, UTC).isoformat(timespec="seconds")
            told = {name: json.loads(getattr(row, name)) for name in _JSON}
            plain = {name: getattr(row, name) for name in _TEXT}
            of = own.get(row.experiment or "") or told["after"].get("alias")
            if alias in (None, of):
                found.append({"seq": row.seq, "at": at, **plain, **told})
        return found

    # --- rollouts -------------------------------------------------------------------------------

    def config(self, alias: str, version: str, settings: dict[str, Any]) -> ABTestConfig:
        """A rollout of `version` against what the alias stands for. settings: fields of an
        `ABTestConfig`. Raises UsageError."""
        given = {
            "alias": alias,
            "incumbent": TestVariant(
                name="incumbent", version=self.store.endpoint(alias).incumbent
            ),
            "candidate": TestVariant(name="candidate", version=version),
        }
        if wrong := sorted(given.keys() & settings.keys()):
            raise UsageError(f"{wrong[0]} is said by the command: remove it from the settings")
        try:
            return ABTestConfig.model_validate({**settings, **given})
        except ValidationError as e:
            raise UsageError(first_complaint(e, prefix="")) from e

    def start_rollout(
        self,
        config: ABTestConfig,
        reason: str,
        actor: str = "operator",
        *,
        without_evaluation: bool = False,
    ) -> ExperimentRow:
        """Past the gate, into the shadow or the ramp. Raises UsageError where the candidate's
        evaluation is missing or worse than the incumbent's, unless `without_evaluation`, and
        ConflictError where the alias has an active rollout."""
        if (active := self.store.active_experiment(config.alias)) is not None:
            raise ConflictError(
                f"{config.alias} has an active rollout, {active.id} ({active.state}): end it first"
            )
        self.store.version(config.candidate.version)  # raises
        evidence = {"gate": "skipped by hand"} if without_evaluation else self._gate(config)
        draft = self.experiments.create(config, actor)
        try:
            return self.experiments.start(draft.id, actor=actor, reason=reason, evidence=evidence)
        except ConflictError:
            self.experiments.stop(draft.id, "another rollout was first", actor)
            raise

    def _gate(self, config: ABTestConfig) -> dict[str, Any]:
        """Evidence that the candidate is not known to be worse. Raises UsageError."""
        incumbent, candidate = (
            self._samples(variant.version) for variant in (config.incumbent, config.candidate)
        )
        first = compare_runs(incumbent, candidate).differences[0]
        if first.ci95[1] < GATE_LOSS:
            raise UsageError(
                f"version {config.candidate.version} is worse in its evaluation: {first.metric} "
                f"{first.estimate:+.3f} ({first.ci95[0]:+.3f} to {first.ci95[1]:+.3f}, "
                f"{first.tasks} tasks); it is not tried on users"
            )
        return {"gate": first.model_dump(mode="json")}

    def _samples(self, version: str) -> list[SampleRecord]:
        told = self.store.version(version).evaluation
        if told is None:
            raise UsageError(
                f"version {version} has no evaluation: `cuda-rl deploy register {version} "
                "--evaluation RUN` adds one, or start with --without-evaluation"
            )
        return [SampleRecord.model_validate(sample) for sample in json.loads(told)]

"""Routes for operators: rollouts over HTTP, and what callers say of their answers.

Each does what `cuda-rl deploy` does, by the same `DeploymentManager`, and needs a token with its
scope, on this machine too. The database may make a handler wait, so each works in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.http import ApiError, Gate, as_json, parsed, read_object
from coding_framework.deployment.store import ExperimentRow
from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line

PAGE = 1000
"""Events of one answer."""
After = Annotated[int, Query(ge=0, lt=1 << 63)]
"""The number of a row: what SQLite takes."""


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NewExperiment(_Given):
    """A rollout to draft."""

    alias: str = Field(max_length=200)
    version: str = Field(max_length=200)
    settings: dict[str, Any] = Field(default_factory=dict)
    """Fields of `ABTestConfig`."""


class Move(_Given):
    """What is done with a rollout."""

    reason: str = Field(min_length=1, max_length=2000)
    force: bool = False
    """promote before the rollout has decided."""
    without_evaluation: bool = False
    """start, though nothing is known of the candidate."""


class Feedback(_Given):
    """What a caller says of its answer."""

    request_id: str = Field(min_length=1, max_length=200)
    """As the answer's header X-CudaRL-Request had it."""
    metric: str = Field(min_length=1, max_length=200)
    value: float = Field(allow_inf_nan=False)


class Admin:
    """The routes of one database."""

    def __init__(
        self, manager: DeploymentManager, gate: Gate, unit: Callable[[str], bytes]
    ) -> None:
        """unit: as it hashes a caller's id (`Traffic.unit`)."""
        self._manager, self._gate, self._unit = manager, gate, unit

    def add_to(self, app: FastAPI) -> None:
        app.post("/admin/experiments")(self._create)
        app.get("/admin/experiments")(self._list)
        app.get("/admin/experiments/{experiment}")(self._show)
        app.get("/admin/experiments/{experiment}/series")(self._series)
        app.get("/admin/experiments/{experiment}/events")(self._events)
        app.post("/admin/experiments/{experiment}/{action}")(self._move)
        app.get("/admin/audit")(self._audit)
        app.post("/v1/feedback")(self._feedback)

    async def _create(self, request: Request) -> Response:
        caller = self._gate.caller(request, "experiments:write")
        asked = parsed(NewExperiment, await read_object(request, self._gate.limits))

        def work() -> ExperimentRow:
            config = self._manager.config(asked.alias, asked.version, asked.settings)
            return self._manager.draft(config, caller.id)

        row = await asyncio.to_thread(work)
        return as_json({"id": row.id, "state": row.state}, 201)

    def _list(self, request: Request, alias: str | None = None) -> Response:
        self._gate.caller(request, "experiments:read")
        rows = self._manager.experiments.list(alias)
        return as_json({"data": [_row(row) for row in rows]})

    def _show(self, request: Request, experiment: str) -> Response:
        self._gate.caller(request, "experiments:read")
        row = self._known(experiment)
        found = self._manager.experiments.evaluate(row.id)
        return as_json({**_row(row), "now": found.model_dump(mode="json")})

    def _series(self, request: Request, experiment: str) -> Response:
        """The looks at each bounded metric, for charts."""
        self._gate.caller(request, "experiments:read")
        return as_json({"data": self._manager.store.looks(self._known(experiment).id)})

    def _events(self, request: Request, experiment: str, after: After = 0) -> Response:
        """So many events after that one, and whether there may be more."""
        self._gate.caller(request, "experiments:read")
        row, found = self._known(experiment), []
        for event in self._manager.store.events(row.id, after):
            found.append(event._asdict() | {"unit": event.unit and event.unit.hex()})
            if len(found) == PAGE:
                break
        return as_json({"data": found, "more": len(found) == PAGE})

    async def _move(self, request: Request, experiment: str, action: str) -> Response:
        caller = self._gate.caller(request, "experiments:write")
        body = parsed(Move, await read_object(request, self._gate.limits))

        def work() -> ExperimentRow:
            row, experiments = self._known(experiment), self._manager.experiments
            if action == "start":
                skips = body.without_evaluation
                return self._manager.start(row.id, body.reason, caller.id, without_evaluation=skips)
            if action == "promote":
                return experiments.promote(row.id, body.reason, caller.id, force=body.force)
            moves = {
                "pause": experiments.pause, "resume": experiments.resume,
                "rollback": experiments.rollback, "stop": experiments.stop,
            }  # fmt: skip
            if action not in moves:
                raise ApiError(404, "no_such_action", f"there is no {one_line(action, 40)!r}")
            return moves[action](row.id, body.reason, caller.id)

        return as_json(_row(await asyncio.to_thread(work)))

    def _audit(self, request: Request, after: After = 0) -> Response:
        self._gate.caller(request, "experiments:read")
        rows = [row for row in self._manager.store.audit() if row.seq > after]
        page = [asdict(row) for row in rows[:PAGE]]
        return as_json({"data": page, "more": len(rows) > PAGE})

    async def _feedback(self, request: Request) -> Response:
        caller = self._gate.caller(request, "complete")
        with self._gate.running(caller):
            said = parsed(Feedback, await read_object(request, self._gate.limits))
            record = self._manager.experiments.record_feedback
            new = await asyncio.to_thread(
                record, said.request_id, said.metric, said.value, self._unit(caller.id)
            )
        return as_json({"recorded": new})

    def _known(self, experiment: str) -> ExperimentRow:
        try:
            return self._manager.experiments.get(experiment)
        except UsageError as e:
            raise ApiError(404, "no_such_experiment", one_line(str(e), 300)) from e


def _row(row: ExperimentRow) -> dict[str, Any]:
    """Without the salts, by which units could be chosen."""
    hidden = ("salt_enrol", "salt_arm", "config")
    return {k: v for k, v in asdict(row).items() if k not in hidden}

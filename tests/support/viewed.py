"""Runs for the viewer's tests, and the viewer over them without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from coding_framework.store.conversations import append_rollout
from coding_framework.store.records import Rollout, StepRecord
from coding_framework.store.training_log import write_steps
from coding_framework.types import CUDAConversationState, Status
from coding_framework.viewer.app import make_app
from coding_framework.viewer.indexer import Indexer
from coding_framework.viewer.library import Library
from coding_framework.viewer.runs import find_runs
from support.made_conversations import make_state, make_turn, make_verdict

KERNEL = """__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


def rollout(
    state: CUDAConversationState, *, step: int = 1, group: str = "g", session: int = 0
) -> Rollout:
    returns = tuple(None if t.masked else 0.5 for t in state.turns)
    return Rollout(step=step, group=group, session=session, state=state, returns=returns)


def repaired(name: str = "c", speedup: float = 2.0, task: str = "relu") -> CUDAConversationState:
    """A conversation whose second turn is correct."""
    wrong = KERNEL.replace("0.0f;", "1.0f;")
    return make_state(
        make_turn(0, make_verdict(Status.WRONG_OUTPUT, reason="3 of 4 elements differ"), wrong),
        make_turn(1, make_verdict(Status.CORRECT, speedup), KERNEL),
        name=name,
        task=task,
    )


def make_rl_run(folder: Path, states: Sequence[CUDAConversationState], *, step: int = 1) -> Path:
    """An RL run whose conversations are all of one step."""
    for session, state in enumerate(states):
        append_rollout(folder / "attempts/000/rollouts", rollout(state, step=step, session=session))
    write_steps(folder / "steps.jsonl", [StepRecord(step=step, solved_rate=0.5, reward_mean=0.4)])
    return folder


class Viewed:
    """The viewer of some paths; `look` brings its indexes up to date."""

    def __init__(self, *paths: Path, index: Path, token: str | None = None) -> None:
        index.mkdir(exist_ok=True)
        self.paths, self.folder = paths, index
        self.library = Library(paths, index)
        self.look()
        self.client = TestClient(
            make_app(self.library, token=token), "http://localhost", follow_redirects=False
        )

    def look(self) -> None:
        indexer = Indexer(self.paths, self.folder)
        indexer.look(find_runs(self.paths))
        indexer.close()

    def run(self, kind: str | None = None) -> str:
        """The id of the first run, of a kind."""
        return next(r.id for r in find_runs(self.paths) if kind in (None, r.kind))

    def page(self, address: str) -> str:
        response = self.client.get(address)
        assert response.status_code == 200, (address, response.status_code, response.text[-500:])
        return response.text

    def data(self, address: str) -> Any:
        return json.loads(self.page(f"/api{address}"))

    def rows(self, query: str = "") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.data(f"/run/{self.run()}/conversations{query}")["page"][
            "rows"
        ]
        return rows

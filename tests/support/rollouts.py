"""Deployments for tests: a database with two versions, a clock that a test moves, and traffic."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from coding_framework.deployment.ab_testing import ABTestConfig, RampStep, TestVariant
from coding_framework.deployment.manager import ABTestManager, add_pair, expose
from coding_framework.deployment.outcomes import Outcome
from coding_framework.deployment.store import (
    DeploymentStore,
    ExperimentRow,
    Transaction,
    VersionRow,
)

GOOD = Outcome(status="verified", speedup=1.0, seconds=0.1)
ERROR = Outcome(status="error", seconds=0.1)
STEPS = (
    RampStep(share=0.1, min_dwell_s=10.0, min_units=20),
    RampStep(share=0.5, min_dwell_s=0.0, min_units=0),
)


@dataclass
class Clock:
    """Microseconds, as a test says."""

    now_us: int = 1_000_000

    def __call__(self) -> int:
        return self.now_us

    def pass_(self, seconds: float) -> None:
        self.now_us += round(seconds * 1e6)


def config(**changes: object) -> ABTestConfig:
    """A short rollout of `new` against `old`, without a shadow phase."""
    return ABTestConfig.model_validate({
        "alias": "kernels",
        "incumbent": TestVariant(name="incumbent", version="old"),
        "candidate": TestVariant(name="candidate", version="new"),
        "shadow_units": 0,
        "window_s": 5.0,
        "steps": STEPS,
        "horizon_units": 1000,
        **changes,
    })  # fmt: skip


def prepared(store: DeploymentStore) -> DeploymentStore:
    """With the versions old and new, and the alias `kernels` for the old one."""
    with store.transaction() as tx:
        for name in ("old", "new"):
            tx.add_version(VersionRow(name, "{}", name, None, tx.now_us))
        tx.add_endpoint("kernels", "old")
        tx.add_audit(
            "operator", "deploy", before=None, after={"alias": "kernels", "incumbent": "old"},
            reason="", evidence={},
        )  # fmt: skip
    return store


def exposed(
    store: DeploymentStore, experiment: str, unit: bytes, variant: str, request: str
) -> bool:
    with store.transaction() as tx:
        return expose(tx, experiment, unit, variant, request)


def ended(store: DeploymentStore, request: str, outcome: Outcome) -> bool:
    with store.transaction() as tx:
        return tx.add_outcome(request, outcome.model_dump_json())


@dataclass
class Deployment:
    """A started rollout whose units and outcomes a test makes."""

    path: Path
    config: ABTestConfig = field(default_factory=config)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = prepared(DeploymentStore(self.path, clock=self.clock, durable=False))
        self.manager = ABTestManager(self.store)
        self.id = self.manager.create(self.config).id
        self.manager.start(self.id, reason="a test")
        self.made = 0

    @property
    def row(self) -> ExperimentRow:
        return self.store.experiment(self.id)

    @property
    def state(self) -> str:
        return self.row.state

    def expose(self, unit: bytes, variant: str, request: str) -> bool:
        return exposed(self.store, self.id, unit, variant, request)

    def end(self, request: str, outcome: Outcome) -> bool:
        return ended(self.store, request, outcome)

    def pair(self, unit: bytes, request: str, incumbent: Outcome, candidate: Outcome) -> bool:
        with self.store.transaction() as tx:
            return add_pair(tx, self.id, unit, request, incumbent, candidate)

    def request(self, candidate: bool, outcome: Outcome | None = GOOD, unit: str = "") -> str:
        """One exposed request; None: it has no outcome yet."""
        with self.store.transaction() as tx:
            return self._request(tx, candidate, outcome, unit)

    def units(self, count: int, good: Outcome = GOOD, candidate: Outcome | None = None) -> None:
        """Units of both arms in turn, of one request each, and the time in which they close."""
        with self.store.transaction() as tx:
            for number in range(count):
                self._request(tx, number % 2 == 1, (candidate or good) if number % 2 else good)
        self.clock.pass_(self.config.window_s + 1)

    def _request(
        self, tx: Transaction, candidate: bool, outcome: Outcome | None, unit: str = ""
    ) -> str:
        self.made += 1
        request = f"r{self.made}"
        variant = "candidate" if candidate else "incumbent"
        assert expose(tx, self.id, (unit or request).encode(), variant, request)
        if outcome is not None:
            assert tx.add_outcome(request, outcome.model_dump_json())
        return request

    def act(self) -> str:
        """What the controller does; the state after it."""
        self.manager.act(self.id)
        return self.state

"""Rollouts of a server: the shadow, retries, and what Prometheus is told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import prometheus_client.parser
import pytest
import yaml

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.server import ModelServer
from coding_framework.deployment.tokens import TokenFile
from coding_framework.deployment.versions import VersionSpec
from support.replayed import replayed
from support.serving import (
    RELU,
    Upstream,
    answer,
    deployed_server,
)

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).parents[2] / "examples" / "deployment"
ALL_AT_ONCE = {"shadow_units": 0, "steps": [{"share": 0.5, "min_dwell_s": 0, "min_units": 0}]}


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.02)


@dataclass
class Deployed:
    """A server with a database, its caller, and its operator, who has the database."""

    client: httpx.Client
    manager: DeploymentManager
    server: ModelServer
    upstream: Upstream

    def start(self, **settings: Any) -> str:
        """A rollout of v2, started without an evaluation."""
        config = self.manager.config("kernels", "v2", {**ALL_AT_ONCE, **settings})
        row = self.manager.start_rollout(config, "a test", without_evaluation=True)
        traffic = self.server.traffic
        until(  # its router follows the database
            lambda: (
                traffic.assign("kernels", b"").experiment is not None
                or traffic.shadow("kernels", b"") is not None
            )
        )
        return row.id

    def ask(self, user: str, **headers: str) -> httpx.Response:
        body = {
            "model": "kernels", "user": user, "messages": [{"role": "user", "content": "x"}],
            "cuda_rl": {"task": "relu", "n": 1, "turns": 1},
        }  # fmt: skip
        return self.client.post("/v1/chat/completions", json=body, headers=headers)

    def state(self, experiment: str) -> str:
        return self.manager.store.experiment(experiment).state

    def metrics(self) -> dict[tuple[str, ...], float]:
        text = self.client.get("/metrics").text
        families = prometheus_client.parser.text_string_to_metric_families(text)
        return {
            (s.name, *sorted(v for k, v in s.labels.items() if k not in ("experiment", "le"))):
            s.value for f in families for s in f.samples
        }  # fmt: skip


@contextmanager
def deployed(folder: Path, said: Callable[[dict[str, Any]], str | int]) -> Iterator[Deployed]:
    upstream = Upstream(said)
    _, secret = TokenFile(folder / "tokens").create(["complete", "experiments:read"])
    with deployed_server(folder, upstream) as (url, server, manager):
        headers = {"Authorization": f"Bearer {secret}"}
        client = httpx.Client(base_url=url, headers=headers, timeout=120)
        until(lambda: client.get("/readyz").status_code == 200)
        yield Deployed(client, manager, server, upstream)


def kernel(body: dict[str, Any]) -> str:
    """The candidate's is four times as fast."""
    return answer(RELU if body["model"] == "m1" else RELU.replace("ms=2.0", "ms=0.5"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Deployed]:
    with deployed(tmp_path, kernel) as found:
        yield found


def test_a_retry_is_answered_by_the_same_arm_and_counted_once(running: Deployed) -> None:
    experiment = running.start()
    seen: set[str] = set()
    keys: list[str] = []
    while len(seen) < 2 or len(keys) < 3:
        keys.append(key := f"k{len(keys)}")
        headers = {"Idempotency-Key": key}
        first, second = (running.ask(f"user {key}", **headers) for _ in range(2))
        told = [a.json()["choices"][0]["cuda_rl"]["served_by"] for a in (first, second)]
        assert told[0] == told[1]
        assert first.headers["x-cudarl-request"] == second.headers["x-cudarl-request"]
        seen.add(told[0])
    kinds = [e.kind for e in running.manager.store.events(experiment)]
    assert (kinds.count("exposure"), kinds.count("outcome")) == (len(keys), len(keys))
    numbers = {running.ask("user k0").headers["x-cudarl-request"] for _ in range(2)}
    kinds = [e.kind for e in running.manager.store.events(experiment)]
    assert len(numbers) == 2  # without a key they are two requests of one unit
    assert kinds.count("exposure") == kinds.count("outcome") == len(keys) + 2
    counts = running.manager.experiments.evaluate(experiment).numbers["counts"]
    assert sum(counts["enrolled"]) == len(keys)


def test_where_a_candidate_fails_the_incumbent_answers_and_it_is_the_candidates_error(
    tmp_path: Path,
) -> None:
    def said(body: dict[str, Any]) -> str | int:
        return 500 if body["model"] == "m2" else answer(RELU)

    with deployed(tmp_path, said) as running:
        experiment = running.start()
        codes: list[int] = []

        def numbers() -> Any:
            return running.manager.experiments.evaluate(experiment).numbers

        def met() -> bool:
            """Whether a user was the candidate's, which chance decides."""
            codes.append(running.ask(f"user {len(codes)}").status_code)
            return numbers()["bad"]["error"]["bad"] > 0

        until(met)
        found = numbers()
    assert set(codes) == {200}
    bad = found["bad"]["error"]
    assert bad["of_candidate"] == bad["bad"] == 1
    assert sum(found["counts"]["outcomes"]) == len(codes)


def test_the_shadow_answers_unseen_and_then_the_candidate_serves(running: Deployed) -> None:
    experiment = running.start(shadow_units=4, shadow_share=1.0)
    users = iter(range(10_000))

    def over() -> bool:
        reply = running.ask(f"user {next(users)}")
        assert reply.status_code == 200
        if running.state(experiment) == "SHADOW":
            assert reply.json()["choices"][0]["cuda_rl"]["served_by"] == "incumbent"
        return running.state(experiment) == "HOLDING"

    until(over)
    kinds = [e.kind for e in running.manager.store.events(experiment)]
    assert kinds.count("shadow_pair") >= 4
    moved = running.manager.history("kernels")[-1]
    assert (moved["actor"], moved["reason"]) == ("controller", "the shadow does no harm")
    assert replayed(running.manager.store).difference is None


def test_a_candidate_that_fails_in_the_shadow_has_served_nobody(tmp_path: Path) -> None:
    def said(body: dict[str, Any]) -> str | int:
        return 500 if body["model"] == "m2" else answer(RELU)

    with deployed(tmp_path, said) as running:
        experiment = running.start(shadow_units=500, shadow_share=1.0)
        users = iter(range(10_000))

        def over() -> bool:
            assert running.ask(f"user {next(users)}").status_code == 200
            return running.state(experiment) == "ROLLED_BACK"

        until(over)
        kinds = [e.kind for e in running.manager.store.events(experiment)]
    assert kinds.count("exposure") == 0


def test_where_the_database_cannot_be_written_it_serves_and_says_degraded(
    running: Deployed,
) -> None:
    experiment = running.start()
    path = running.manager.store.path
    moved = path.with_name("moved")
    path.rename(moved)
    assert running.ask("somebody").status_code == 200
    until(lambda: running.client.get("/readyz").json()["status"] == "degraded")
    assert running.client.get("/readyz").status_code == 200
    assert str(path.parent) not in running.client.get("/readyz").text
    moved.rename(path)
    until(lambda: running.client.get("/readyz").json()["status"] == "ready")
    assert running.manager.store.experiment(experiment).reason == "storage"


def test_metrics_tell_of_the_rollout_and_every_name_in_use_is_there(running: Deployed) -> None:
    running.start()
    for n in range(4):
        running.ask(f"user {n}")
    until(lambda: ("cuda_rl_experiment_state", "HOLDING", "kernels") in running.metrics())
    found = running.metrics()
    assert found["cuda_rl_experiment_enrolment", "kernels"] == 1.0
    assert 0.001 < found["cuda_rl_srm_p", "kernels"] <= 1.0
    assert ("cuda_rl_guardrail_log_e", "error", "kernels") in found
    assert found["cuda_rl_events_total",] >= 8
    assert found["cuda_rl_event_commit_seconds_count",] >= 1
    assert found["cuda_rl_request_seconds_count", "kernels", "total"] == 4
    text = running.client.get("/metrics").text
    known = {f.name for f in prometheus_client.parser.text_string_to_metric_families(text)}
    files = (EXAMPLES / "grafana.json", EXAMPLES / "alerts.yaml")
    yaml.safe_load(files[1].read_text())
    named = {name for file in files for name in re.findall(r"cuda_rl_\w+", file.read_text())}
    assert {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in named} <= known
    assert {"cuda_rl_experiment_state", "cuda_rl_guardrail_log_e", "cuda_rl_srm_p"} <= named


def test_a_version_whose_backend_is_nowhere_is_unavailable_and_not_a_crash(
    running: Deployed,
) -> None:
    running.manager.register_version("v4", VersionSpec(model="m4", backend="nowhere"))
    running.manager.rollback("kernels", "a test", to="v4")
    until(lambda: running.server.traffic.assign("kernels", b"").version == "v4")
    refused = running.ask("somebody")
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "unavailable")
    assert "add it to its file" in running.client.get("/readyz").text

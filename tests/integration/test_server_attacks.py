"""The server's routes as an attacker meets them: operators' routes under hostile requests, bodies
that never end, and what must be in no log and no answer."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.http import Gate
from coding_framework.deployment.limits import Limits
from coding_framework.deployment.server import ModelServer
from coding_framework.deployment.tokens import TokenFile
from coding_framework.deployment.traffic import open_traffic
from coding_framework.deployment.verify import verify
from coding_framework.registry.receipts import new_key
from support.serving import (
    RELU,
    ScriptedJudge,
    Upstream,
    answer,
    app_served,
    config_of,
    upstream_running,
)

pytestmark = pytest.mark.integration
SCOPES = ("complete", "verify", "experiments:read", "experiments:write", "admin")
QUICK = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=80
)
MANY = settings(QUICK, max_examples=int(os.environ.get("FUZZ_REQUESTS", "10000")))


class Attacked:
    """A server with a database and a token for everything."""

    def __init__(self, url: str, secret: str, server: ModelServer, manager: DeploymentManager):
        self.url, self.secret, self.server, self.manager = url, secret, server, manager
        headers = {"Authorization": f"Bearer {secret}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60)

    def connected(self) -> socket.socket:
        where = urlsplit(self.url)
        assert where.hostname is not None
        return socket.create_connection((where.hostname, where.port or 80), timeout=60)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    tokens = TokenFile(folder / "tokens")
    _, secret = tokens.create(SCOPES)
    upstream = Upstream(lambda body: answer(RELU))
    upstream.models = ["m1", "m2"]
    with upstream_running(upstream) as backend:
        config = config_of(
            [backend], folder, database=str(folder / "deployment.sqlite"),
            versions={"v1": {"model": "m1"}, "v2": {"model": "m2"}},
        )  # fmt: skip
        traffic, versions, manager = open_traffic(config)
        assert manager is not None
        limits = Limits(requests_per_s=1e6, concurrent=1000, candidates_per_min=1e9, body_s=0.3)
        server = ModelServer(
            config, ScriptedJudge(), "emulator", new_key(folder / "keys", "judge"),
            Gate(tokens, limits), traffic, versions, manager=manager,
        )  # fmt: skip
        with app_served(server.app) as url:
            yield Attacked(url, secret, server, manager)
        traffic.close()


def admin_routes(server: ModelServer) -> list[tuple[str, str]]:
    """(method, path) of each, with a name for what it takes."""
    return [
        (method, re.sub(r"{\w+}", "x", route.path))
        for route in server.app.routes
        for method in sorted(getattr(route, "methods", ()))
        if route.path.startswith("/admin")  # type: ignore[attr-defined]
    ]


def test_every_operators_route_needs_a_token_and_its_scope(attacked: Attacked) -> None:
    routes = admin_routes(attacked.server)
    assert len(routes) >= 7
    _, poor = attacked.server.gate.tokens.create(["complete", "verify"])  # type: ignore[union-attr]
    for secret, status in (("", 401), ("Bearer crl_wrong", 401), (f"Bearer {poor}", 403)):
        for method, path in routes:
            headers = {"Authorization": secret}
            said = attacked.client.request(method, path, headers=headers, json={})
            assert said.status_code == status, (method, path, said.text)


def test_without_any_token_operators_routes_are_shut(tmp_path: Path) -> None:
    config = config_of(["http://127.0.0.1:9"], tmp_path, database=str(tmp_path / "d.sqlite"))
    traffic, versions, manager = open_traffic(config)
    server = ModelServer(
        config, ScriptedJudge(), "emulator", new_key(tmp_path / "keys", "judge"),
        Gate(None, config.limits), traffic, versions, manager=manager,
    )  # fmt: skip
    with app_served(server.app) as url, httpx.Client(base_url=url, timeout=60) as client:
        for method, path in admin_routes(server):
            assert client.request(method, path, json={}).status_code == 403
    traffic.close()


text = st.text(max_size=30) | st.sampled_from(["kernels", "v2", "..", "%00", "a/b", "'; --", "NaN"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
setting = st.sampled_from([
    "shadow_units", "window_s", "split", "steps", "metrics", "unit", "horizon_units", "mde",
    "power", "alpha", "slow_s", "max_duration_s", "candidate", "incumbent", "on_inconclusive",
])  # fmt: skip
given_body = st.fixed_dictionaries(
    {},
    optional={
        "alias": st.just("kernels") | values, "version": st.just("v2") | values,
        "settings": st.dictionaries(setting, values, max_size=3) | values,
        "reason": text | values, "force": values, "without_evaluation": st.just(True) | values,
        "request_id": text | values, "metric": text | values, "value": values,
        "name": text | values, "urls": st.lists(text, max_size=2) | values, "key_env": values,
    },
)  # fmt: skip
where = st.sampled_from([
    ("POST", "/admin/experiments"), ("GET", "/admin/experiments"),
    ("GET", "/admin/experiments/{}"), ("GET", "/admin/experiments/{}/series"),
    ("GET", "/admin/experiments/{}/events"), ("POST", "/admin/experiments/{}/start"),
    ("POST", "/admin/experiments/{}/stop"), ("POST", "/admin/experiments/{}/{}"),
    ("GET", "/admin/audit"), ("POST", "/v1/feedback"), ("GET", "/v1/jobs/{}"),
])  # fmt: skip
queries = st.none() | st.integers() | st.integers(min_value=1 << 62) | text


def send(attacked: Attacked, at: tuple[str, str], name: str, query: Any, body: Any) -> None:
    method, path = at
    drafts = attacked.manager.experiments.list()
    known = drafts[-1].id if drafts and len(name) % 2 else name
    path = path.replace("{}", quote(known, safe=""), 1).replace("{}", quote(name, safe=""))
    asked = {} if query is None else {"after": query, "alias": query}
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    said = attacked.client.request(method, path, params=asked, content=data)
    assert said.status_code < 500 or said.status_code == 503, said.text
    assert "Traceback" not in said.text
    assert "our_fault" not in said.text, (method, path, query, body, said.text)
    assert said.is_success or set(said.json()) == {"error"}, said.text


@given(where, text, queries, given_body)
@QUICK
def test_no_request_of_80_to_operators_routes_is_our_fault(
    attacked: Attacked, at: tuple[str, str], name: str, query: Any, body: Any
) -> None:
    send(attacked, at, name, query, body)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(where, text, queries, given_body)
@MANY
def test_no_request_of_10_000_to_operators_routes_is_our_fault(
    attacked: Attacked, at: tuple[str, str], name: str, query: Any, body: Any
) -> None:
    send(attacked, at, name, query, body)


def test_the_log_of_decisions_is_whole_after_them(attacked: Attacked) -> None:
    assert attacked.client.get("/healthz").status_code == 200
    assert verify(attacked.manager.store).difference is None


def head(attacked: Attacked, *lines: str) -> bytes:
    own = ("POST /v1/chat/completions HTTP/1.1", f"Authorization: Bearer {attacked.secret}")
    return "\r\n".join([*own, "Host: 127.0.0.1", *lines, "", ""]).encode("latin-1")


def test_a_body_that_never_comes_is_408(attacked: Attacked) -> None:
    with attacked.connected() as client:
        client.sendall(head(attacked, "Content-Length: 1000") + b'{"a"')
        assert b" 408 " in client.recv(4096)


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Content-Length: 2000000"], b""),
        (["Content-Length: 99999999999999999999999"], b""),
        (["Transfer-Encoding: chunked"], b"200000\r\n" + b"x" * 0x200000 + b"\r\n0\r\n\r\n"),
    ],
)
def test_a_huge_body_is_refused_before_it_is_read_whole(
    attacked: Attacked, lines: list[str], body: bytes
) -> None:
    with attacked.connected() as client:
        try:
            client.sendall(head(attacked, *lines) + body)
            said = client.recv(4096)
        except ConnectionError:
            said = b""  # it hung up before all was sent
    assert said == b"" or b" 413 " in said or b" 400 " in said


@pytest.mark.parametrize(
    "line", ["X-CudaRL-Session: a\rSet-Cookie: b=1", "Idempotency-Key: a\r\n\tSet-Cookie: b=1"]
)
def test_a_header_puts_nothing_into_the_answer(attacked: Attacked, line: str) -> None:
    body = json.dumps(
        {"model": "kernels", "messages": [{"role": "user", "content": "x"}], "user": "u"}
    ).encode()
    with attacked.connected() as client:
        client.sendall(head(attacked, line, f"Content-Length: {len(body)}") + body)
        said = client.recv(4096)
    assert b"set-cookie" not in said.split(b"\r\n\r\n")[0].lower()


def test_no_secret_and_no_text_of_a_user_is_in_the_log(
    attacked: Attacked, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    marked = "said-by-a-user"
    body = {
        "model": "kernels", "user": marked, "messages": [{"role": "user", "content": marked}],
        "cuda_rl": {"task": "relu", "n": 1, "turns": 1},
    }  # fmt: skip
    ask, query = "/v1/chat/completions", {"token": attacked.secret, "q": marked}
    attacked.client.post(ask, json=body, params=query, headers={"X-CudaRL-Session": marked})
    attacked.client.post(ask, json={**body, "model": marked})
    attacked.client.post(ask, json={**body, "cuda_rl": {"task": marked}})
    attacked.client.get(f"/{attacked.secret}/{marked}", params=query)
    refused = attacked.client.get("/admin/audit", params={"after": attacked.secret})
    assert refused.status_code == 422
    assert attacked.secret not in refused.text
    metrics = attacked.client.get("/metrics").text
    written = "".join(capfd.readouterr()) + caplog.text + metrics
    assert "answered" in written
    for hidden in (attacked.secret, marked):
        assert hidden not in written

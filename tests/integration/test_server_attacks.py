"""The server's routes as an attacker meets them: hostile feedback, bodies that never end, and what
must be in no log and no answer."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.http import Gate
from coding_framework.deployment.server import ModelServer
from coding_framework.deployment.verify import verify
from support.serving import (
    RELU,
    Upstream,
    answer,
    deployed_server,
)

pytestmark = pytest.mark.integration
QUICK = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=80
)
MANY = settings(QUICK, max_examples=int(os.environ.get("FUZZ_REQUESTS", "10000")))


class Attacked:
    """A server with a database and a key."""

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
    secret = "a-key-of-the-server"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_RL_API_KEY", secret)
        gate = Gate()
    upstream = Upstream(lambda body: answer(RELU))
    with deployed_server(folder, upstream, gate) as (url, server, manager):
        yield Attacked(url, secret, server, manager)


text = st.text(max_size=30) | st.sampled_from(["kernels", "v2", "..", "%00", "a/b", "'; --", "NaN"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
given_body = st.fixed_dictionaries(
    {},
    optional={
        "request_id": text | values, "metric": text | values, "value": values,
    },
)  # fmt: skip


def send(attacked: Attacked, body: Any) -> None:
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    said = attacked.client.post("/v1/feedback", content=data)
    assert said.status_code < 500 or said.status_code == 503, said.text
    assert "Traceback" not in said.text
    assert "our_fault" not in said.text, (body, said.text)
    assert set(said.json()) == {"error"}, said.text


@given(given_body)
@QUICK
def test_no_feedback_of_80_is_our_fault(attacked: Attacked, body: Any) -> None:
    send(attacked, body)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(given_body)
@MANY
def test_no_feedback_of_10_000_is_our_fault(attacked: Attacked, body: Any) -> None:
    send(attacked, body)


def test_the_log_of_decisions_is_whole_after_them(attacked: Attacked) -> None:
    assert attacked.client.get("/healthz").status_code == 200
    assert verify(attacked.manager.store).difference is None


def head(attacked: Attacked, *lines: str) -> bytes:
    own = ("POST /v1/chat/completions HTTP/1.1", f"Authorization: Bearer {attacked.secret}")
    return "\r\n".join([*own, "Host: 127.0.0.1", *lines, "", ""]).encode("latin-1")


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
    metrics = attacked.client.get("/metrics").text
    written = "".join(capfd.readouterr()) + caplog.text + metrics
    assert "answered" in written
    for hidden in (attacked.secret, marked):
        assert hidden not in written

"""Hostile requests: whatever comes, an answer is a sentence, and our fault is never a traceback."""

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
from support.replayed import replayed
from support.serving import RELU, Upstream, answer, deployed_server

pytestmark = pytest.mark.integration

CLIENT = httpx.Client(timeout=60)
ROUTES = (
    "/v1/chat/completions", "/v1/completions", "/metrics"
)  # fmt: skip
NO_LIMIT = settings(
    deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=300
)
MANY = settings(NO_LIMIT, max_examples=int(os.environ.get("FUZZ_REQUESTS", "10000")))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
words = st.sampled_from(["relu", "kernels", "user", "system", "x", "../x", "", "\x00", "‮"])
options = st.dictionaries(
    st.sampled_from(
        ["task", "n", "turns", "budget_s", "target", "min_speedup", "require_verified"]
    ),
    words | json_values | st.just("relu"),
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": st.just("kernels") | words | json_values,
        "messages": st.lists(
            st.fixed_dictionaries({"role": words, "content": words | json_values}), max_size=3
        )
        | st.just([{"role": "user", "content": "x"}])
        | json_values,
        "stream": st.booleans() | json_values,
        "max_tokens": st.integers() | json_values,
        "temperature": st.floats() | json_values,
        "seed": st.integers() | json_values,
        "user": words | json_values,
        "cuda_rl": options | json_values,
    },
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, DeploymentManager]]:
    folder = tmp_path_factory.mktemp("fuzz")
    upstream = Upstream(lambda body: answer(RELU))
    with deployed_server(folder, upstream) as (url, _, manager):
        yield url, manager


def require_decent(response: httpx.Response) -> None:
    assert response.status_code < 500 or response.status_code == 503, response.text
    assert "Traceback" not in response.text
    assert "our_fault" not in response.text, response.text


def send_object(url: str, route: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    require_decent(CLIENT.post(url + route, content=data))


def send_bytes(url: str, data: bytes) -> None:
    """Whatever it is, the server says something in HTTP or hangs up, and lives."""
    where = urlsplit(url)
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port or 80), timeout=1) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        said = b""
        try:
            while part := client.recv(65536):
                said += part
                client.settimeout(0.2)  # the rest of an answer; it may keep the connection
        except (ConnectionError, TimeoutError):
            pass
    assert b"Traceback" not in said
    assert not said.startswith(b"HTTP/1.1 500")


heads = st.sampled_from(
    [
        b"",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: [::]\r\nContent-Length: 20\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: [::]\r\nX: ",
        b"GET /%2e%2e/%00 HTTP/1.1\r\n\r\n",
    ]
)


@given(st.sampled_from(ROUTES), bodies)
@settings(NO_LIMIT, max_examples=270)
def test_no_request_of_270_gets_5xx_or_a_traceback(
    target: tuple[str, DeploymentManager], route: str, body: dict[str, Any]
) -> None:
    send_object(target[0], route, body)


@given(heads, st.binary(max_size=200))
@settings(NO_LIMIT, max_examples=30)
def test_no_bytes_of_30_get_500_or_a_traceback(
    target: tuple[str, DeploymentManager], head: bytes, data: bytes
) -> None:
    send_bytes(target[0], head + data)


def test_it_lives_after_them_and_its_log_is_whole(target: tuple[str, DeploymentManager]) -> None:
    assert httpx.get(f"{target[0]}/healthz", timeout=60).status_code == 200
    assert replayed(target[1].store).difference is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(st.sampled_from(ROUTES), bodies)
@settings(MANY)
def test_no_request_of_10_000_gets_5xx_or_a_traceback(
    target: tuple[str, DeploymentManager], route: str, body: dict[str, Any]
) -> None:
    send_object(target[0], route, body)

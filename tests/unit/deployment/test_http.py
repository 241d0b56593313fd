"""The key, limits and errors that every server of ours has."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from coding_framework.deployment.http import (
    Gate,
    HttpMetrics,
    Listen,
    make_app,
    read_object,
)
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.store.folder import one_at_a_time

pytestmark = pytest.mark.unit


def app_of(gate: Gate) -> FastAPI:
    app = make_app("test", gate, HttpMetrics())

    @app.post("/echo")
    async def echo(request: Request) -> Any:
        return await read_object(request)

    @app.get("/crash")
    async def crash() -> None:
        raise RuntimeError("the secret of the traceback")

    @app.get("/away")
    async def away() -> None:
        raise InfrastructureError("no nvcc is here: install it")

    return app


def client_of(gate: Gate | None = None) -> TestClient:
    return TestClient(
        app_of(gate or Gate()), base_url="http://127.0.0.1", raise_server_exceptions=False
    )


def test_without_a_key_a_local_caller_is_let_in() -> None:
    assert client_of().post("/echo", json={"a": 1}).json() == {"a": 1}


@pytest.mark.parametrize(
    ("header", "status"), [("", 401), ("Bearer no", 401), ("Basic key", 401), ("Bearer key", 200)]
)
def test_with_a_key_every_request_needs_it(
    monkeypatch: pytest.MonkeyPatch, header: str, status: int
) -> None:
    monkeypatch.setenv("CUDA_RL_API_KEY", "key")
    answer = client_of().post("/echo", json={}, headers={"Authorization": header})
    assert answer.status_code == status


def sent(client: TestClient, path: str, **headers: str) -> tuple[int, str]:
    answer = client.get(path, headers=headers)
    return answer.status_code, "" if answer.is_success else answer.json()["error"]["type"]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "10.0.0.7:80", "[::1]:9", "ours"])
def test_a_server_is_asked_by_its_addresses_and_names(host: str) -> None:
    client = TestClient(app_of(Gate(Listen(hosts=("Ours",)))))
    assert sent(client, "/healthz", host=host) == (200, "")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/echo", "/nothing"])
def test_without_a_key_a_page_of_another_site_gets_nothing(path: str) -> None:
    """Its name may point to this machine (DNS rebinding), or it may only send."""
    client = client_of()
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[", "a\x00b"):
        assert sent(client, path, host=host) == (421, "unknown_host")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:81", "http://6.6.6.6"):
        assert sent(client, path, origin=origin) == (403, "other_origin")
    assert sent(client, path, origin="http://127.0.0.1")[0] != 403


def test_with_a_key_a_server_is_asked_by_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_RL_API_KEY", "key")
    assert sent(client_of(), "/healthz", host="behind.a.proxy") == (200, "")


def test_who_waits_long_for_a_lock_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    with one_at_a_time(tmp_path / "tokens", told.append):
        thread = threading.Thread(target=_enter, args=(tmp_path / "tokens", told.append))
        thread.start()
        time.sleep(1.3)
    thread.join()
    assert told == [f"waiting for {tmp_path / '.tokens.lock'}, which another process holds"]


def _enter(guarded: Path, wait: Any) -> None:
    with one_at_a_time(guarded, wait):
        pass


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "not_json"),
        (b"[]", 400, "not_an_object"),
        (b'{"a": "\\ud800"}', 400, "not_json"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, 400, "too_deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, 400, "not_json"),
        (b'{"a": "' + b"x" * 2000 + b'"}', 413, "too_large"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_in_a_sentence(
    body: bytes, status: int, kind: str
) -> None:
    size = 1024 if status == 413 else 1 << 20
    answer = client_of(Gate(body_bytes=size)).post("/echo", content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_a_body_without_its_length_is_limited_too() -> None:
    chunks = iter([b'{"a": "', b"x" * 3000, b'"}'])
    answer = client_of(Gate(body_bytes=1024)).post("/echo", content=chunks)
    assert answer.status_code == 413


def test_a_crash_is_503_with_a_number_and_no_traceback() -> None:
    answer = client_of().get("/crash")
    assert answer.status_code == 503
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["x-cudarl-request"] in answer.json()["error"]["message"]


def test_a_fault_of_the_machine_is_503_with_its_sentence() -> None:
    answer = client_of().get("/away")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "install it" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/echo", 405)])
def test_a_wrong_address_is_an_error_of_the_same_form(path: str, status: int) -> None:
    answer = client_of().get(path)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, "http_error")


def test_metrics_count_answers_by_route_and_not_by_path() -> None:
    client = client_of()
    client.get("/nothing/1")
    client.get("/nothing/2")
    text = client.get("/metrics").text
    assert 'cuda_rl_http_responses_total{route="other",status="404"} 2.0' in text


def test_an_address_that_others_reach_needs_a_key_also_for_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="CUDA_RL_API_KEY"):
        Gate(Listen(host="0.0.0.0"))
    monkeypatch.setenv("CUDA_RL_API_KEY", "key")
    client = client_of(Gate(Listen(host="0.0.0.0")))
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer key"}).status_code == 200
    assert client_of().get("/metrics").status_code == 200

"""Tokens and errors that every server of ours has."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from coding_framework.deployment import http
from coding_framework.deployment.http import (
    MOST_BYTES,
    Gate,
    HttpMetrics,
    Listen,
    make_app,
    read_object,
)
from coding_framework.deployment.tokens import TokenFile
from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.store.folder import one_at_a_time
from support.serving import app_served

pytestmark = pytest.mark.unit


def app_of(gate: Gate, most_bytes: int = MOST_BYTES) -> FastAPI:
    app = make_app("test", gate, HttpMetrics())

    @app.post("/echo")
    async def echo(request: Request) -> Any:
        gate.caller(request, "verify")
        return await read_object(request, most_bytes)

    @app.get("/crash")
    async def crash() -> None:
        raise RuntimeError("the secret of the traceback")

    @app.get("/away")
    async def away() -> None:
        raise InfrastructureError("no nvcc is here: install it")

    return app


def client_of(tokens: TokenFile | None = None, most_bytes: int = MOST_BYTES) -> TestClient:
    app = app_of(Gate(tokens), most_bytes)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def test_without_tokens_a_local_caller_is_let_in() -> None:
    assert client_of().post("/echo", json={"a": 1}).json() == {"a": 1}


def test_with_a_token_in_the_file_a_caller_needs_one(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["verify"])
    client = client_of(tokens)
    refused = client.post("/echo", json={})
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "no_token")
    wrong = client.post("/echo", json={}, headers={"Authorization": "Bearer crl_no"})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (401, "wrong_token")
    right = client.post("/echo", json={}, headers={"Authorization": f"Bearer {secret}"})
    assert right.status_code == 200
    assert secret not in tokens.path.read_text()


def sent(client: TestClient, path: str, **headers: str) -> tuple[int, str]:
    answer = client.get(path, headers=headers)
    return answer.status_code, "" if answer.is_success else answer.json()["error"]["type"]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "10.0.0.7:80", "[::1]:9", "ours"])
def test_a_server_is_asked_by_its_addresses_and_names(host: str) -> None:
    client = TestClient(app_of(Gate(None, Listen(hosts=("Ours",)))))
    assert sent(client, "/healthz", host=host) == (200, "")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/echo", "/nothing"])
def test_without_tokens_a_page_of_another_site_gets_nothing(path: str) -> None:
    """Its name may point to this machine (DNS rebinding), or it may only send."""
    client = client_of()
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[", "a\x00b"):
        assert sent(client, path, host=host) == (421, "unknown_host")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:81", "http://6.6.6.6"):
        assert sent(client, path, origin=origin) == (403, "other_origin")
    assert sent(client, path, origin="http://127.0.0.1")[0] != 403


def test_with_tokens_a_server_is_asked_by_any_name(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    tokens.create(["complete"])
    assert sent(client_of(tokens), "/healthz", host="behind.a.proxy") == (200, "")


def test_a_token_file_of_before_opens_without_the_scopes_that_are_gone(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["complete"])
    text = tokens.path.read_text().replace('"complete"', '"admin","complete"')
    tokens.path.write_text(text.replace('"id"', '"daily_quota":5,"id"'))
    token = TokenFile(tokens.path).find(secret)
    assert token is not None
    assert token.scopes == {"complete"}


def test_a_revoked_token_ends_without_a_restart(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    token_id, secret = tokens.create(["verify"])
    client = client_of(tokens)
    header = {"Authorization": f"Bearer {secret}"}
    assert client.post("/echo", json={}, headers=header).status_code == 200
    TokenFile(tokens.path).revoke(token_id)
    assert client.post("/echo", json={}, headers=header).status_code == 401


def test_an_expired_token_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["verify"], expires_s=100.0)
    made = tokens.all()[0].created_at
    assert tokens.find(secret, made + 99.0) is not None
    assert tokens.find(secret, made + 101.0) is None


def test_a_token_without_the_scope_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["complete"])
    refused = client_of(tokens).post(
        "/echo", json={}, headers={"Authorization": f"Bearer {secret}"}
    )
    assert refused.status_code == 403
    assert "verify" in refused.json()["error"]["message"]


def test_revoking_an_unknown_token_says_where_the_ids_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="token list"):
        TokenFile(tmp_path / "tokens").revoke("1234")


def in_processes(code: str, *arguments: str, count: int) -> list[str]:
    """What each of so many processes prints that run it at the same time."""
    command = [sys.executable, "-c", code, *arguments]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return [process.communicate()[0].strip() for process in started]


CREATE_AND_REVOKE = """
import sys
from pathlib import Path
from coding_framework.deployment.tokens import TokenFile
file = TokenFile(Path(sys.argv[1]))
for _ in range(10):
    kept, _ = file.create(["verify"])
    ended, _ = file.create(["verify"])
    file.revoke(ended)
    print(kept, ended)
"""


def test_tokens_that_are_made_and_revoked_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    said = in_processes(CREATE_AND_REVOKE, str(path), count=4)
    made = [line.split() for text in said for line in text.splitlines()]
    assert len(made) == 40
    state = {t.id: t.revoked_at is not None for t in TokenFile(path).all()}
    assert state == {
        name: ended for kept, gone in made for name, ended in ((kept, False), (gone, True))
    }


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


def test_a_file_that_holds_no_tokens_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("not json\n")
    with pytest.raises(UsageError, match="not a file of tokens"):
        TokenFile(tmp_path / "tokens").all()


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
    answer = client_of(most_bytes=size).post("/echo", content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_a_body_without_its_length_is_limited_too() -> None:
    chunks = iter([b'{"a": "', b"x" * 3000, b'"}'])
    answer = client_of(most_bytes=1024).post("/echo", content=chunks)
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


@pytest.mark.parametrize("becomes", ["moved", "emptied", "damaged"])
def test_a_token_is_needed_whatever_becomes_of_the_file(tmp_path: Path, becomes: str) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["verify"])
    client = client_of(tokens)  # no request has come yet
    if becomes == "moved":
        tokens.path.rename(tmp_path / "elsewhere")
    else:
        tokens.path.write_text("" if becomes == "emptied" else "what")
    answers = [
        client.post("/echo", json={}, headers=headers)
        for headers in ({}, {"Authorization": f"Bearer {secret}"})
    ]
    assert [a.status_code for a in answers] == [401, 503 if becomes == "damaged" else 401]


def test_a_token_that_is_made_while_a_server_runs_shuts_it_for_good(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    client = client_of(tokens)
    assert client.post("/echo", json={}).status_code == 200
    TokenFile(tokens.path).create(["verify"])
    assert client.post("/echo", json={}).status_code == 401
    tokens.path.unlink()
    assert client.post("/echo", json={}).status_code == 401


def test_metrics_of_an_address_that_others_reach_need_a_token(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    _, secret = tokens.create(["complete"])
    app = app_of(Gate(tokens, Listen(host="0.0.0.0")))
    client = TestClient(app, base_url="http://127.0.0.1")
    assert client.get("/metrics").status_code == 401
    header = {"Authorization": f"Bearer {secret}"}
    assert client.get("/metrics", headers=header).status_code == 200
    assert client_of(tokens).get("/metrics").status_code == 200


def test_other_addresses_need_a_token(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    with pytest.raises(UsageError, match="token create"):
        Gate(tokens, Listen(host="0.0.0.0"))
    tokens.create(["complete"])
    Gate(tokens, Listen(host="0.0.0.0"))
    Gate(None)


REQUEST = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8\r\n\r\n{}      "
REFUSED = b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999\r\n\r\n"


def test_no_connection_stays_open_whatever_its_client_sends_and_then_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that stops after any of its bytes, a body that goes on after its answer, line ends
    that are no request."""
    for name in ("HEAD_S", "BODY_S"):
        monkeypatch.setattr(http, name, 0.5)
    with app_served(app_of(Gate(None)), timeout_keep_alive=1) as url:
        where = urlsplit(url)
        sent = [REQUEST[:n] for n in range(0, len(REQUEST) + 1, 7)]
        sent += [REQUEST + b"\r\n", REQUEST + REQUEST[:30], REFUSED, REFUSED + b"x" * 50]
        held = []
        for data in sent:
            made = socket.create_connection((where.hostname, where.port or 80), timeout=60)
            made.sendall(data)
            held.append(made)
        trickling = held[-1]
        ends, closed = time.monotonic() + 6.0, set[int]()
        while len(closed) < len(held) and time.monotonic() < ends:
            with contextlib.suppress(OSError):
                trickling.send(b"x")
            for number, made in enumerate(held):
                made.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    try:
                        over = not made.recv(1 << 16)
                    except ConnectionError:
                        over = True
                    closed |= {number} if over else set()
        assert [sent[n] for n in range(len(held)) if n not in closed] == []
        for made in held:
            made.close()


def test_a_head_that_goes_on_is_refused() -> None:
    with app_served(app_of(Gate(None))) as url:
        where = urlsplit(url)
        made = socket.create_connection((where.hostname, where.port or 80), timeout=60)
        made.sendall(REQUEST.partition(b"\r\n\r\n")[0] + b"\r\nX: " + b"x" * (17 << 10))
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 400")
        made.close()


def test_the_proxy_limits_addresses_and_closes_metrics_as_the_page_says() -> None:
    root = Path(__file__).parents[3]
    conf = (root / "examples/deployment/nginx.conf").read_text()
    assert "zone=open" in conf.partition("limit_conn_zone $binary_remote_addr")[2]
    page = (root / "docs/serving.md").read_text().partition("```nginx\n")[2].partition("```")[0]
    for line in page.splitlines():
        assert line in conf
    assert "location /metrics { deny all; }" in page

"""The server's routes as an attacker meets them: huge bodies, headers, and what must be in no log
and no answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from coding_framework.deployment.tokens import TokenFile
from support.serving import (
    RELU,
    Upstream,
    answer,
    deployed_server,
)

pytestmark = pytest.mark.integration


class Attacked:
    """A server with a database and a token for everything."""

    def __init__(self, url: str, secret: str) -> None:
        self.url, self.secret = url, secret
        headers = {"Authorization": f"Bearer {secret}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60)

    def connected(self) -> socket.socket:
        where = urlsplit(self.url)
        assert where.hostname is not None
        return socket.create_connection((where.hostname, where.port or 80), timeout=60)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    _, secret = TokenFile(folder / "tokens").create(["complete", "verify"])
    upstream = Upstream(lambda body: answer(RELU))
    with deployed_server(folder, upstream) as (url, _, _):
        yield Attacked(url, secret)


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

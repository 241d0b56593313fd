"""Whatever happens on the way to a judge server ends in a verdict or in one kind of error."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from coding_framework.integrations import client as client_module
from coding_framework.integrations.client import JudgeClient
from coding_framework.integrations.kernels import KernelJudge, answer_of
from coding_framework.types import Status

pytestmark = pytest.mark.unit

BODY = json.dumps({"status": "correct"}).encode()


class _Handler(BaseHTTPRequestHandler):
    fault: str
    calls: int

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).calls += 1
        fault = self.fault if type(self).calls == 1 else ""
        if fault == "closed":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status = int(fault[:3]) if fault[:3].isdigit() else 200
        self.send_response(status)
        if fault == "429 date":
            self.send_header("Retry-After", "Mon, 30 Nov 2026 15:00:00 GMT")
        body = BODY if not fault else b"<html>a page</html>"
        length = len(body) + (100 if fault == "cut" else 0)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        for i in range(len(body)):
            self.wfile.write(body[i : i + 1])
        if fault == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def _server(fault: str) -> Iterator[tuple[str, type[_Handler]]]:
    handler = type("Handler", (_Handler,), {"fault": fault, "calls": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module.time, "sleep", lambda seconds: None)


@pytest.mark.parametrize(
    "fault", ["closed", "cut", "page", "429 date", "502 page", "503 page", "504 page"]
)
def test_what_breaks_on_the_way_is_asked_again(fault: str) -> None:
    with _server(fault) as (url, handler):
        assert JudgeClient(url).verdict("relu", "x") == {"status": "correct"}
        assert handler.calls == 2


@pytest.mark.parametrize("fault", ["404 page", "500 page"])
def test_a_refusal_without_a_sentence_is_named_by_its_status(fault: str) -> None:
    with (
        _server(fault) as (url, handler),
        pytest.raises(RuntimeError, match=f"status {fault[:3]}"),
    ):
        JudgeClient(url).verdict("relu", "x")
    assert handler.calls == 1


@pytest.mark.parametrize("fault", ["closed", "cut", "page", "502 page"])
def test_who_does_not_wait_is_told_by_the_same_kind_of_error(fault: str) -> None:
    with _server(fault) as (url, _), pytest.raises(RuntimeError, match=r"no judge|status 502"):
        JudgeClient(url, wait_s=1).verdict("relu", "x")


def test_answers_are_judged_from_within_a_running_loop() -> None:
    async def trainer() -> Any:
        return KernelJudge("http://127.0.0.1:9").judge([("relu", "no code here")])

    [judged] = asyncio.run(trainer())
    assert judged.verdict is not None
    assert judged.verdict.status is Status.COMPILE_ERROR


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        ([{"role": "user", "content": "hello"}], ""),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant", "content": [{"type": "text", "text": "said"}]}], "said"),
        (
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"function": {"name": "submit", "arguments": '{"code": "x"}'}}],
                }
            ],
            '{"code": "x"}',
        ),
    ],
)
def test_the_text_of_a_completion_is_found_in_each_of_its_forms(completion: Any, text: str) -> None:
    assert answer_of(completion) == text

"""`cuda-rl mcp`, driven by the SDK's own client: from a wrong kernel to a verified one."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from coding_framework.deployment.http import Gate
from coding_framework.deployment.tokens import TokenFile
from coding_framework.errors import UsageError
from coding_framework.integrations.mcp_server import JudgeTools
from coding_framework.types import Task
from support.time_bar import crowding, machine_factor

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"
RELU, WRONG = ((EXAMPLES / name).read_text() for name in ("relu.cu", "relu_wrong.cu"))
COMMAND = ["-m", "coding_framework.cli", "mcp", "--backend", "emulator", "--workers", "1"]
MOST_CHARS = 8000
"""About 2,000 tokens."""


def agent() -> Client:
    return Client(StdioServerParameters(command=sys.executable, args=COMMAND))


async def say(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    """What the tool answered, and whether that is an error."""
    result = await client.call_tool(tool, arguments)
    text = "\n".join(part.text for part in result.content)
    assert len(text) < MOST_CHARS
    return text, bool(result.is_error)


async def test_a_scripted_agent_comes_from_a_wrong_kernel_to_a_verified_one() -> None:
    """A fixed policy, no model: it looks the task up, reads why it is wrong, and mends that. Then
    it asks 16 times at once for what is known."""
    async with agent() as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"judge", "explain", "counters", "write", "tasks"}
        described, _ = await say(client, "tasks", words="relu")
        assert "torch.relu" in described
        kernel = WRONG
        for _turn in range(3):
            verdict, failed = await say(client, "judge", task="relu", kernel=kernel)
            assert not failed
            if verdict.startswith("correct"):
                break
            page, _ = await say(client, "explain", task="relu", kernel=kernel)
            assert "max(x, 0)" in page
            kernel = RELU
        assert verdict.startswith("correct: all")
        counted, _ = await say(client, "counters", task="relu", kernel=kernel)
        assert "dram__bytes_read.sum" in counted
        start = time.perf_counter()
        calls = [say(client, "judge", task="relu", kernel=RELU) for _ in range(16)]
        assert {text.split(":")[0] for text, _ in await asyncio.gather(*calls)} == {"correct"}
        assert (time.perf_counter() - start) / 16 < 0.3 * machine_factor()


async def test_several_first_kernels_are_written_at_once() -> None:
    names = ["mul2_add_relu", "tanh_mul2"]
    async with agent() as client:
        said = await asyncio.gather(*(say(client, "write", task=name) for name in names))
    for text, failed in said:
        assert not failed
        assert "correct" in text.splitlines()[0]
        assert "__global__" in text


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"task": "reluu", "kernel": "x"}, "no task is called 'reluu'; close names: relu"),
    ({"task": "no_such.py:M", "kernel": "x"}, "cannot be read"),
    ({"task": "relu", "kernel": "no_such.cu"}, "no_such.cu"),
    ({"task": "relu", "kernel": "x" * (2 << 20)}, "has over 1 Mi characters"),
    ({"task": "relu"}, "kernel is missing"),
    ({"task": "relu", "kernel": ["\x1b[2J" * 9999]}, "kernel cannot be"),
    ({"task": 3, "kernel": ["\x1b[2J"]}, "task cannot be 3: input should be"),
]


async def test_hostile_arguments_end_in_a_sentence() -> None:
    async with agent() as client:
        for arguments, said in HOSTILE:
            text, failed = await say(client, "judge", **arguments)
            assert failed
            assert said in text
            assert "\n" not in text
            assert "https" not in text
            assert "\x1b" not in text


MIXED: list[tuple[str, dict[str, Any], str]] = [
    ("judge", {"task": "relu", "kernel": RELU}, "correct: all"),
    ("judge", {"task": "relu", "kernel": WRONG}, "wrong_output"),
    ("explain", {"task": "relu", "kernel": WRONG}, "max(x, 0)"),
    ("counters", {"task": "relu", "kernel": RELU}, "dram__bytes_read.sum"),
    ("tasks", {"words": "relu"}, "torch.relu"),
    ("tasks", {"words": "m s", "count": 3}, "others"),
    ("write", {"task": "relu"}, "relu: correct"),
    *(("judge", arguments, said) for arguments, said in HOSTILE if len(str(arguments)) < 1000),
]
CALLS, AT_ONCE = 200, 16


async def test_none_of_200_mixed_calls_is_lost() -> None:
    """16 at once, drawn; each gets the answer of its own arguments. A lone call of a kernel that is
    known takes less than 0.3 s."""
    async with agent() as client:
        for tool, arguments, _ in MIXED:
            await say(client, tool, **arguments)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(tool: str, arguments: dict[str, Any], wanted: str) -> str:
            async with turns:
                text, _ = await say(client, tool, **arguments)
            return "" if wanted in text else f"{tool} {arguments}: {text}"

        drawn = random.Random(0).choices(MIXED, k=CALLS)
        assert set(await asyncio.gather(*(one(*each) for each in drawn))) == {""}
        start = time.perf_counter()
        await say(client, "judge", task="relu", kernel=RELU)
        assert time.perf_counter() - start < 0.3 * machine_factor() * crowding()


def test_a_line_without_end_takes_no_memory() -> None:
    """A client sends 200 MB in a line and then a request, which is answered."""
    request = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    with subprocess.Popen(
        [sys.executable, *COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for _ in range(200):
            server.stdin.write(b"x" * 1_000_000)
        server.stdin.write(b"\n" + json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 7
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        assert int(peak[1]) < 200_000
        server.stdin.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server over HTTP that asks for tokens: its address and a secret."""
    tokens = tmp_path_factory.mktemp("mcp") / "tokens"
    _, secret = TokenFile(tokens).create(["verify"])
    command = [sys.executable, *COMMAND, "--http", "--port", "0", "--tokens", str(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        yield url[0], secret
        server.terminate()


def post(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        url,
        body,
        {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **headers,
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except urllib.error.URLError:  # it was answered, and hung up on, before all of it was sent
        return 413, ""


def called(**arguments: str) -> bytes:
    parameters = {"name": "judge", "arguments": arguments}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
    ).encode()


async def test_over_http_callers_take_turns_and_have_few_open_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first caller asks four times at once, then the second once: of two places it has one."""
    monkeypatch.setattr("coding_framework.deployment.http.MOST_OPEN", 4)
    tokens = TokenFile(tmp_path / "tokens")
    secrets = [tokens.create(["verify"])[1] for _ in range(2)]
    may, judged = asyncio.Semaphore(0), list[str]()

    class Judge:
        capacity = 1

        async def verdict_async(self, task: Task, code: str) -> Any:
            judged.append(code)
            await may.acquire()
            raise UsageError("it was judged")

    app = JudgeTools(Judge(), files=False).app(Gate(tokens), 1 << 20)  # type: ignore[arg-type]
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers
        ) as client,
    ):

        def ask(who: int, code: str) -> asyncio.Task[httpx.Response]:
            own = {"authorization": f"Bearer {secrets[who]}"}
            body = called(task="relu", kernel=code)
            return asyncio.create_task(client.post("/mcp", content=body, headers=own))

        asked = [ask(0, str(n)) for n in range(4)]
        while len(judged) < 2:
            await asyncio.sleep(0.01)
        assert (await ask(0, "too many")).status_code == 429
        asked.append(ask(1, "other"))
        await asyncio.sleep(0.5)
        for _ in range(5):
            may.release()
        answers = await asyncio.gather(*asked)
    assert all("it was judged" in answer.text for answer in answers)
    assert "other" in judged[:4]


def test_over_http_a_token_is_needed_and_no_file_is_read(secured: tuple[str, str]) -> None:
    url, secret = secured
    asked = called(task="relu", kernel=WRONG)
    assert post(url, asked)[0] == 401
    status, said = post(url, asked, authorization=f"Bearer {secret}")
    assert status == 200
    assert "wrong_output" in said
    file = called(task="/etc/passwd.py:M", kernel="x")
    assert "a file cannot be named here" in post(url, file, authorization=f"Bearer {secret}")[1]
    assert post(url, b"x" * (5 << 20), authorization=f"Bearer {secret}")[0] == 413

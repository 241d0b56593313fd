"""A real judge server as a process: verdicts come, and survive the deaths of client and worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from coding_framework.deployment.judge_server import MOST_BYTES
from coding_framework.integrations.client import JudgeClient
from coding_framework.integrations.kernels import KernelJudge
from coding_framework.integrations.trl_reward import VerdictReward, prompts

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLES = Path(__file__).parents[2] / "examples"
RIGHT, WRONG = ((EXAMPLES / name).read_text() for name in ("relu.cu", "relu_wrong.cu"))


class Running:
    """A server and its address."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "coding_framework.cli", "judge-server", "--port", "0"]
        self.log = folder / "requests.jsonl"
        self.process = subprocess.Popen(
            [*command, "--workers", "1", "--folder", str(folder), "--log-file", str(self.log)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=300)

    def worker(self) -> psutil.Process:
        """Its worker, once there is one."""
        while True:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                if "coding_framework.cuda.many.worker" in child.cmdline():
                    return child
            time.sleep(0.1)


def test_each_request_is_a_line_of_the_log_and_none_of_stdout(tmp_path: Path) -> None:
    running = Running(tmp_path)
    urllib.request.urlopen(f"{running.url}/healthz").close()
    running.end()
    answered = [line for line in running.log.read_text().splitlines() if '"/healthz"' in line]
    assert len(answered) == 1
    assert running.process.stdout is not None
    assert running.process.stdout.read() == ""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.end()


def test_a_batch_is_judged_and_a_wrong_name_is_told(server: Running) -> None:
    client = JudgeClient(server.url)
    kernels = [
        {"id": "r", "task": "relu", "code": RIGHT},
        {"id": "w", "task": "relu", "code": WRONG},
    ]
    results = client.verdicts(kernels)
    assert [r["verdict"]["status"] for r in results] == ["correct", "wrong_output"]
    with pytest.raises(RuntimeError, match="close names: relu"):
        client.verdict("relw", RIGHT)


def test_a_worker_that_is_killed_costs_no_verdict(server: Running) -> None:
    asking = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys; from coding_framework.integrations.client import JudgeClient\n"
            "print(JudgeClient(sys.argv[1]).verdict('relu', sys.argv[2])['status'])",
            *(server.url, RIGHT),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    server.worker().kill()
    assert asking.communicate()[0].strip() == "correct"


def test_a_client_that_is_killed_finds_its_verdict_when_it_asks_again(
    server: Running, tmp_path: Path
) -> None:
    asking = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys; from coding_framework.integrations.client import JudgeClient\n"
            "JudgeClient(sys.argv[1]).verdict('relu', sys.argv[2])",
            *(server.url, RIGHT),
        ]
    )
    server.worker()
    os.kill(asking.pid, signal.SIGKILL)
    asking.wait()
    kept = tmp_path / "verdicts"
    while not list(kept.rglob("*.json")):
        time.sleep(0.1)
    (found,) = kept.rglob("*.json")
    said = JudgeClient(server.url).verdict("relu", RIGHT)
    assert said["receipt"] == json.loads(found.read_text())["receipt"]


def test_the_reward_of_trl_asks_the_server(server: Running) -> None:
    reward = VerdictReward(KernelJudge(server.url))
    (row,) = prompts(["relu"])
    assert row["prompt"][-1]["role"] == "user"
    answers = [f"```cuda\n{RIGHT}\n```", [{"role": "assistant", "content": "no kernel"}]]
    right, none = reward(answers, ["relu", "relu"])
    assert right is not None
    assert none is not None
    assert right > none
    assert reward.last[1].verdict is not None
    assert reward.last[1].verdict.status.value == "compile_error"


SIZE = MOST_BYTES - 4096
LARGEST = (
    b'{"task": "relu", "code": "' + b"x" * SIZE + b'"}',
    b'{"task": "relu", "code": [' + b"[]," * (SIZE // 3) + b"0]}",
    '{"task": "relu", "code": "\U0001f600'.encode() + b"x" * SIZE + b'"}',
)
"""A source that is far too long, as many lists as fit, and characters that take four bytes."""


def test_bodies_of_the_largest_size_that_come_at_once_take_two_gib_at_most(
    server: Running,
) -> None:
    def send(number: int) -> int:
        address = urlsplit(server.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=300)
        try:
            connection.request("POST", "/v1/verdicts", LARGEST[number % 3])
            return connection.getresponse().status
        except OSError:  # refused while it was sending
            return 503
        finally:
            connection.close()

    with ThreadPoolExecutor(32) as clients:
        told = Counter(clients.map(send, range(32)))
    root = psutil.Process(server.process.pid)
    judges = sum(child.memory_info().rss for child in root.children(recursive=True))
    status = Path(f"/proc/{root.pid}/status").read_text()
    peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
    print(f"{peak / 2**30:.2f} GiB, and {judges / 2**30:.2f} of judges: {told}")
    assert set(told) <= {200, 400, 408, 503}
    assert peak + judges <= 2 << 30
    assert "status" in JudgeClient(server.url).verdict("relu", "no kernel")

"""`cuda-rl serve` with several processes: they answer as one, and one that ends is started anew."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from coding_framework.deployment.deployment_manager import DeploymentManager
from coding_framework.deployment.store import DeploymentStore
from coding_framework.deployment.tokens import TokenFile
from coding_framework.deployment.verify import verify
from coding_framework.registry.receipts import new_key
from support.serving import Upstream, config_of, upstream_running
from support.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

CHAT = {"model": "kernels", "messages": [{"role": "user", "content": "hello"}]}


class Serving:
    """A started `cuda-rl serve`."""

    def __init__(self, process: subprocess.Popen[str], url: str, folder: Path) -> None:
        self.process, self.url, self.folder = process, url, folder

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        alive = [c for c in children if c.status() != psutil.STATUS_ZOMBIE]
        return [c for c in alive if any("spawn_main" in word for word in c.cmdline())]

    def ask(self, user: str = "somebody", **more: Any) -> httpx.Response:
        """On a connection of its own, so that any worker may take it."""
        body = {**CHAT, "user": user}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=120, **more)

    def metric(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=120).text
        return sum(float(v) for v in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M))


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[Serving]:
    new_key(folder / "keys", "judge")
    with upstream_running(Upstream(lambda body: "Hello.")) as url:
        given = {
            "listen": {"port": 0, "workers": 2}, "judge": {"backend": "emulator", "workers": 1},
            "database": str(folder / "deployment.sqlite"), **settings,
        }  # fmt: skip
        config = config_of([url], folder, **given).model_dump(mode="json")
        (folder / "serve.yaml").write_text(yaml.safe_dump(config))
        cuda_rl = str(Path(sys.executable).with_name("cuda-rl"))
        command = [cuda_rl, "serve", "--config", str(folder / "serve.yaml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            try:
                yield Serving(process, line.split()[-1], folder)
            finally:
                process.terminate()
                process.wait(120)


def test_a_worker_that_is_killed_is_started_anew_and_its_counts_stay(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        before = running.workers()
        assert len(before) == 2
        for _ in range(10):
            assert running.ask().status_code == 200
        before[0].kill()
        for _ in range(10):
            assert running.ask().status_code == 200
        until(lambda: len(running.workers()) == 2)
        assert before[0].pid not in {w.pid for w in running.workers()}
        until(lambda: running.metric("cuda_rl_backend_up") == 1)
        assert running.metric("cuda_rl_requests_total") == 20
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(120) == 130
    assert not psutil.pid_exists(before[1].pid)


def test_workers_that_are_killed_lose_and_double_no_answered_request(tmp_path: Path) -> None:
    settings = {
        "versions": {"v1": {"model": "m"}, "v2": {"model": "m", "temperature": 0.5}},
    }  # fmt: skip
    answered, broken = [], 0
    with serving(tmp_path, **settings) as running:
        manager = DeploymentManager(DeploymentStore(tmp_path / "deployment.sqlite"))
        everybody = {"shadow_units": 0, "steps": [{"share": 0.5}], "answer_within_s": 2.0}
        rollout = manager.config("kernels", "v2", everybody)
        row = manager.start_rollout(rollout, "a test", without_evaluation=True)
        until(lambda: manager.store.experiment(row.id).state in ("RAMPING", "HOLDING"))
        for number in range(90):
            if number % 30 == 15:
                running.workers()[0].kill()
            try:
                answer = running.ask(user=f"user-{number}")
            except httpx.HTTPError:
                broken += 1  # the process that took it was killed
                continue
            assert answer.status_code == 200
            answered.append(answer.headers["x-cudarl-request"])
        until(lambda: len(running.workers()) == 2)
        until(lambda: open_requests(manager.store, row.id) == set())
        ids = Counter(event.id for event in manager.store.events(row.id))
        assert verify(manager.store).difference is None
        manager.store.close()
    enrolled = [request for request in answered if ids[f"{request}:e"]]
    assert len(enrolled) > 40
    assert all(ids[f"{request}:e"] == ids[f"{request}:o"] == 1 for request in enrolled)
    assert broken < 10


def open_requests(store: DeploymentStore, experiment: str) -> set[str | None]:
    events = list(store.events(experiment))
    asked, ended = ({e.request for e in events if e.kind == k} for k in ("exposure", "outcome"))
    return asked - ended


def test_workers_count_one_tokens_requests_and_tokens_together(tmp_path: Path) -> None:
    _, secret = TokenFile(tmp_path / "tokens").create(["complete"], limits={"tokens_per_day": 30})
    header = {"Authorization": f"Bearer {secret}"}
    with serving(tmp_path) as running:
        statuses = []
        for _ in range(30):
            statuses.append(running.ask(headers=header).status_code)
        until(lambda: running.ask(headers=header).status_code == 429)
    assert statuses[0] == 200
    with serving(tmp_path / "again", tokens=str(tmp_path / "tokens")) as running:
        assert running.ask(headers=header).status_code == 429


def test_the_workers_end_with_their_parent(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        workers = running.workers()
        os.kill(running.process.pid, signal.SIGKILL)
        until(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers))


def test_the_database_learns_the_file_once_and_an_address_that_is_taken_is_a_sentence(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as running:
        store = DeploymentStore(tmp_path / "deployment.sqlite")
        assert [row.action for row in store.audit()] == ["register", "deploy"]
        store.close()
        port = running.url.rsplit(":", 1)[1]
        cuda_rl = str(Path(sys.executable).with_name("cuda-rl"))
        command = [cuda_rl, "serve", "--config", str(tmp_path / "serve.yaml"), "--port", port]
        second = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (second.returncode, "choose another" in second.stderr) == (2, True)

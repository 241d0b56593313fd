"""`examples/launch/node.sh` on two hosts: network namespaces of this machine, each with addresses,
a home folder and a folder of Ray of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"
    ),
]

ROOT = Path(__file__).parents[3]
NODE = ROOT / "examples/launch/node.sh"
HOSTS = {"a": "10.213.7.1", "b": "10.213.7.2"}


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Two namespaces that a cable joins: their names by host."""
    names = {host: f"cudarl-{os.getpid()}-{host}" for host in HOSTS}
    ends = {host: f"v{os.getpid()}{host}" for host in HOSTS}

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", ends["a"], "netns", names["a"], "type", "veth",
           "peer", "name", ends["b"], "netns", names["b"])  # fmt: skip
        for host, address in HOSTS.items():
            ip("-n", names[host], "addr", "add", f"{address}/24", "dev", ends[host])
            ip("-n", names[host], "link", "set", ends[host], "up")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)


def start(
    namespace: str, home: Path, log: Path, *words: str, **variables: str
) -> subprocess.Popen[bytes]:
    """A role of node.sh on a host."""
    ray = home / "ray"
    ray.mkdir(parents=True)
    Path("/tmp/ray").mkdir(exist_ok=True)
    own = f'mount --bind "{ray}" /tmp/ray && exec bash "{NODE}" "$@"'
    with log.open("wb") as out:
        return subprocess.Popen(
            ["ip", "netns", "exec", namespace, "unshare", "--mount", "--pid", "--fork",
             "--kill-child", "--mount-proc", "bash", "-c", own, "node.sh", *words],
            stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env={
                **os.environ, "HOME": str(home), "GPUS": "0", "OBJECT_STORE_MIB": "256",
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables,
            },
        )  # fmt: skip


def test_a_host_that_judges_serves_the_command_of_the_first(
    hosts: dict[str, str], tmp_path: Path
) -> None:
    pairs, logs = tmp_path / "pairs.jsonl", {host: tmp_path / f"{host}.log" for host in HOSTS}
    relu = (ROOT / "examples/relu.cu").read_text()
    wrong = (ROOT / "examples/relu_wrong.cu").read_text()
    lines = ({"id": str(i), "task": "relu", "code": c} for i, c in enumerate((relu, wrong)))
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    token = secrets.token_hex(32)
    command = ["cuda-rl", "judge-many", "--tasks-and-kernels", str(pairs), "--ray", "auto"]
    command += ["--workers", "1", "--output", str(tmp_path / "verdicts.jsonl")]
    shared = {"RAY_AUTH_TOKEN": token, "NODES": "2", "JUDGE_JOBS": "2"}
    first = start(
        hosts["a"], tmp_path / "home_a", logs["a"], "first", HOSTS["a"], *command, **shared
    )
    judge = start(
        hosts["b"], tmp_path / "home_b", logs["b"], "judge", HOSTS["a"], SELF=HOSTS["b"], **shared
    )
    try:
        assert first.wait(600) == 0, "".join(f"\n== {h}\n{p.read_text()}" for h, p in logs.items())
        assert judge.wait(60) == 0, logs["b"].read_text()
    finally:
        for process in (first, judge):
            process.kill()
            process.wait()
    found = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert [line["status"] for line in found] == ["correct", "wrong_output"]

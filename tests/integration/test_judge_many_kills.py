"""`judge-many` under SIGKILL of its parts: run again, one verdict a pair, and nothing left behind.

tests/soak/judge_kills.py does this 30 times, at random points.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from corpus.judge_attacks import ATTACKS
from support.judge_tasks import ADD, ADD_TASK, DOUBLE, DOUBLE_TASK, ROW_SUM, ROW_SUM_TASK
from support.other_cache import other_cache
from support.waiting import PATIENCE_S, left_of

pytestmark = pytest.mark.integration

QUICK = ("compile_error", "load_error", "rejected")


def words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def is_device(process: psutil.Process) -> bool:
    parent = process.parent()
    server = "emulator.fork_server"
    return parent is not None and server in words(process) and server in words(parent)


def is_sandbox(process: psutil.Process) -> bool:
    return process.name() in ("bwrap", "host_runner", "confine_exec")


def kill_first(owner: subprocess.Popen[bytes], wanted: Callable[[psutil.Process], bool]) -> None:
    """SIGKILL a descendant of that kind as soon as there is one."""
    root = psutil.Process(owner.pid)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert owner.poll() is None, "it ended before it could be killed"
        for process in root.children(recursive=True):
            with suppress(psutil.Error):
                if wanted(process):
                    process.kill()
                    return
        time.sleep(0.005)
    raise AssertionError("nothing to kill")


def lines_of(output: Path) -> list[dict[str, object]]:
    data = output.read_bytes() if output.exists() else b""
    return [json.loads(x) for x in data.splitlines(keepends=True) if x.endswith(b"\n")]


def traces(temporary: Path, cache: Path) -> set[str]:
    """Files, shared memory and mounts that a judge could leave."""
    files = [*temporary.rglob("*"), *(cache / "builds" / "partial").glob("*")]
    ipc = [
        f"{kind} {line}"
        for kind in ("shm", "sem", "msg")
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    ]
    ours = str(cache.parent)  # other tests mount too
    mounts = [x for x in Path("/proc/self/mounts").read_text().splitlines() if ours in x]
    return {*map(str, files), *map(str, Path("/dev/shm").glob("*")), *ipc, *mounts}


@pytest.mark.ci
def test_killed_and_run_again_every_pair_has_one_verdict_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    jobs = [(DOUBLE_TASK, DOUBLE), (ROW_SUM_TASK, ROW_SUM), (ADD_TASK, ADD)]
    jobs += [(a.task, a.code) for a in ATTACKS if {s.value for s in a.statuses} <= set(QUICK)][:5]
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    other_cache(cache)
    temporary.mkdir()
    pairs, output = tmp_path / "pairs.jsonl", tmp_path / "verdicts.jsonl"
    with pairs.open("w") as file:
        for i, (task, code) in enumerate(jobs):
            (tmp_path / f"{task.name}.json").write_text(task.model_dump_json())
            line = {"id": str(i), "task": f"{task.name}.json", "code": code}
            file.write(json.dumps(line) + "\n")
    environment = {**os.environ, "CUDA_RL_CACHE": str(cache), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "coding_framework.cli", "judge-many", "--workers", "1"]
    command += ["--tasks-and-kernels", str(pairs), "--output", str(output)]
    before = traces(temporary, cache)

    first = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    kill_first(first, is_sandbox)
    kill_first(first, is_device)
    while first.poll() is None and not lines_of(output):
        time.sleep(0.02)
    family = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    assert left_of(family) == []

    for _ in range(3):
        again = subprocess.run(command, env=environment, capture_output=True, check=False)
        if again.returncode == 0:
            break
    assert again.returncode == 0, again.stderr
    verdicts = [line for line in lines_of(output) if "status" in line]
    assert sorted(str(line["id"]) for line in verdicts) == [str(i) for i in range(len(jobs))]
    assert [line["status"] for line in sorted(verdicts, key=lambda v: str(v["id"]))][:3] == [
        "correct"
    ] * 3
    assert traces(temporary, cache) - before == set()

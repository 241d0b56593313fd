"""A sandbox that is reused: each job in it is a process of its own, and none outlives the next."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from coding_framework.cuda.sandbox import SANDBOXES, Job, Limits, Mount, choose_sandbox
from coding_framework.cuda.sandbox.reused import ReusedJob, ReusedSandbox
from coding_framework.errors import MissingChoiceError, SandboxError
from support.waiting import ended, until


@pytest.fixture(params=[name for name in SANDBOXES if name != "docker"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[ReusedSandbox]:
    try:
        with closing(ReusedSandbox(choose_sandbox(request.param))) as made:
            yield made
    except MissingChoiceError as e:
        pytest.skip(str(e))


def job(folder: Path, script: str, **limits: int) -> Job:
    return Job(["/bin/sh", "-c", script], (), Limits(cpu_s=5, **limits), Mount(folder, "/work"))


def start(sandbox: ReusedSandbox, made: Job, output: IO[bytes]) -> ReusedJob:
    with Path("/dev/null").open("rb") as nothing:
        return sandbox.start(made, stdin=nothing, output=output)


def said(sandbox: ReusedSandbox, made: Job) -> str:
    with tempfile.TemporaryFile() as output:
        end = start(sandbox, made, output).wait(20)
        assert end.code == 0
        output.seek(0)
        return output.read().decode().strip()


def test_each_job_is_a_process_of_its_own_in_one_sandbox(
    sandbox: ReusedSandbox, tmp_path: Path
) -> None:
    made = job(tmp_path, "echo $$")
    first = said(sandbox, made)
    running = sandbox._running
    assert said(sandbox, made) != first
    assert sandbox._running is running
    said(sandbox, job(tmp_path, "echo another"))
    assert sandbox._running is not running


def test_how_a_job_ended_is_told(sandbox: ReusedSandbox, tmp_path: Path) -> None:
    def code(script: str) -> int:
        made = job(tmp_path, script)
        with tempfile.TemporaryFile() as output:
            return start(sandbox, made, output).wait(20).code

    assert code("exit 7") == 7
    assert code("kill -SEGV $$") == -signal.SIGSEGV
    assert code("kill -XCPU $$") == -signal.SIGXCPU


def test_a_job_that_waits_is_killed_and_the_next_one_starts(
    sandbox: ReusedSandbox, tmp_path: Path
) -> None:
    made = job(tmp_path, "sleep 60 & wait")
    with tempfile.TemporaryFile() as output:
        first = start(sandbox, made, output)
        until(lambda: any(p.name() == "sleep" for p in first.processes()))
        slept = [p for p in first.processes() if p.name() == "sleep"]
        assert first.wait(0.01).timed_out
        until(lambda: all(ended(p.pid) for p in slept))
        second = start(sandbox, made, output)
        until(lambda: any(p.name() == "sleep" for p in second.processes()))
        slept = [p for p in second.processes() if p.name() == "sleep"]
        sandbox.close()
        until(lambda: all(ended(p.pid) for p in slept))
        second.stop()  # no error


def test_a_starter_that_is_gone_is_our_fault(sandbox: ReusedSandbox, tmp_path: Path) -> None:
    made = job(tmp_path, "echo $$")
    said(sandbox, made)
    assert sandbox._running is not None
    sandbox._running.stop()
    with pytest.raises(SandboxError, match="try again"):
        said(sandbox, made)
    assert said(sandbox, made)

"""Sandboxes: choice, isolation, limits, and that nothing outlives a job."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from coding_framework.cuda.sandbox import (
    SANDBOXES,
    Exit,
    Job,
    Limits,
    Mount,
    Running,
    Sandbox,
    choose_sandbox,
)
from coding_framework.cuda.sandbox.bubblewrap import BubblewrapSandbox
from coding_framework.cuda.sandbox.native import NativeSandbox
from coding_framework.errors import MissingToolError, UsageError
from support.waiting import PATIENCE_S, ended, left_of, until

pytestmark = pytest.mark.unit

LIMITS = Limits(cpu_s=5, wall_s=PATIENCE_S, file_bytes=1 << 20)


@pytest.fixture(params=sorted(SANDBOXES))
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "docker":
        docker: Sandbox = request.getfixturevalue("docker_sandbox")
        return docker
    made = SANDBOXES[request.param]()
    reason = made.missing()
    if reason is not None:
        pytest.skip(reason)
    return made


def run(sandbox: Sandbox, folder: Path, script: str, limits: Limits = LIMITS) -> tuple[Exit, str]:
    job = Job(
        command=["/bin/sh", "-c", script],
        mounts=(),
        limits=limits,
        folder=Mount(folder, "/work", writable=True),
    )
    with tempfile.TemporaryFile() as output:
        end = sandbox.start(job, stdin=subprocess.DEVNULL, output=output).wait(limits.wall_s)
        output.seek(0)
        return end, output.read().decode()


def test_a_job_runs_and_its_exit_status_is_told(sandbox: Sandbox, tmp_path: Path) -> None:
    end, text = run(sandbox, tmp_path, "echo hello > made; echo there; exit 7")
    assert (end.code, end.timed_out, text) == (7, False, "there\n")
    assert (tmp_path / "made").read_text() == "hello\n"


def test_the_environment_is_not_handed_on(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert "hunter2" not in run(sandbox, tmp_path, "env; export")[1]


def test_cpu_time_is_limited(sandbox: Sandbox, tmp_path: Path) -> None:
    end, _ = run(sandbox, tmp_path, "while :; do :; done", Limits(cpu_s=1, wall_s=PATIENCE_S))
    assert end.code in (-24, -9)
    assert not end.timed_out


def test_wall_time_is_a_backstop_that_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    end, _ = run(sandbox, tmp_path, "sleep 3600", Limits(wall_s=0.3))
    assert end.timed_out


def test_files_are_limited(sandbox: Sandbox, tmp_path: Path) -> None:
    run(sandbox, tmp_path, "head -c 5000000 /dev/zero > big 2>/dev/null; yes > big2")
    assert all(f.stat().st_size <= LIMITS.file_bytes for f in tmp_path.iterdir())


def test_memory_is_limited(sandbox: Sandbox, tmp_path: Path) -> None:
    script = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"
    end, _ = run(sandbox, tmp_path, script, Limits(cpu_s=20, memory_bytes=100 << 20))
    assert end.code != 0


def test_no_descendant_outlives_a_stop(sandbox: Sandbox, tmp_path: Path) -> None:
    job = Job(
        command=["/bin/sh", "-c", "for i in 1 2 3 4 5; do sleep 600 & done; : > up; wait"],
        mounts=(),
        limits=LIMITS,
        folder=Mount(tmp_path, "/work", writable=True),
    )
    running: Running = sandbox.start(job, stdin=subprocess.DEVNULL, output=subprocess.DEVNULL)
    until((tmp_path / "up").exists)
    family = running.processes()
    assert len(family) >= 5
    running.stop()
    if sandbox.name == "bubblewrap":  # whose `stop` waits for the namespace to be gone
        assert all(ended(process.pid) for process in family)
    running.stop()
    assert left_of(family) == []


def test_what_leaves_its_process_group_dies_with_the_job(sandbox: Sandbox, tmp_path: Path) -> None:
    if sandbox.name == "native":
        pytest.skip("the native sandbox has no namespace: host code cannot fork there")
    script = (
        "setsid sh -c 'trap \"\" TERM HUP; sleep 617' & (setsid sleep 617 &) ; touch up; exit 0"
    )
    end, _ = run(sandbox, tmp_path, script)
    assert end.code == 0
    until(lambda: not _sleepers())


def _sleepers() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "617"]]


def test_files_processes_and_network_are_out_of_reach(sandbox: Sandbox, tmp_path: Path) -> None:
    if isinstance(sandbox, NativeSandbox) and not sandbox.hides_files:
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    work = tmp_path / "work"
    work.mkdir()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(["/bin/sleep", "60"]) as bystander,
    ):
        script = f"""
cat {secret} && echo FILE
cat /etc/passwd && echo PASSWD
cat /proc/{os.getpid()}/environ && echo ENVIRON
ls {Path.home()} && echo HOME
kill -9 {bystander.pid} && echo KILL
(exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}) && echo NETWORK
touch /usr/made && echo WRITE1
touch /made && echo WRITE2
touch {tmp_path}/made && echo WRITE3
touch /work/inside made && echo allowed
echo done
"""
        job = Job(["/bin/bash", "-c", script], (), LIMITS, Mount(work, "/work", writable=True))
        with tempfile.TemporaryFile() as output:
            sandbox.start(job, stdin=subprocess.DEVNULL, output=output).wait(PATIENCE_S)
            output.seek(0)
            said = set(output.read().decode().split())
        bystander.kill()
    broken = {"FILE", "PASSWD", "ENVIRON", "HOME", "KILL", "NETWORK", "WRITE1", "WRITE2", "WRITE3"}
    assert "done" in said
    assert not (broken | {"hunter2"}) & said
    assert (work / "made").exists()


ORPHANED = """
import subprocess, sys, time
from pathlib import Path
from coding_framework.cuda.sandbox import SANDBOXES, Job, Limits, Mount
folder = Path(sys.argv[2])
job = Job(["/bin/sleep", "613"], (), Limits(), Mount(folder, "/work", writable=True))
running = SANDBOXES[sys.argv[1]]().start(job, stdin=subprocess.DEVNULL, output=subprocess.DEVNULL)
while not (found := [p for p in running.processes() if p.name() == "sleep"]):
    time.sleep(0.01)
print(found[0].pid, flush=True)
time.sleep(600)
"""


def test_a_job_dies_with_a_judge_that_is_killed(
    sandbox: Sandbox, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = dict(os.environ)
    if sandbox.name == "docker":
        environment["DOCKER_HOST"] = request.getfixturevalue("docker_host")
    command = [sys.executable, "-c", ORPHANED, sandbox.name, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as judge:
        assert judge.stdout is not None
        sleeper = psutil.Process(int(judge.stdout.readline()))
        judge.kill()
    assert left_of([sleeper]) == []


def test_auto_takes_the_first_that_works() -> None:
    first = next(name for name, make in SANDBOXES.items() if make().missing() is None)
    choose_sandbox.cache_clear()
    assert choose_sandbox().name == first


def test_an_unknown_name_gives_the_choices() -> None:
    with pytest.raises(UsageError, match="choose one of auto, no-docker, bubblewrap"):
        choose_sandbox("chroot")


def test_a_named_sandbox_that_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose_sandbox.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingToolError, match="apt-get install bubblewrap"):
        choose_sandbox("bubblewrap")
    choose_sandbox.cache_clear()


def test_a_machine_without_any_sandbox_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_sandbox.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingToolError, match=r"no sandbox works here .*util-linux"):
        choose_sandbox()
    choose_sandbox.cache_clear()


def test_auto_falls_back_to_native(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose_sandbox.cache_clear()
    prlimit = tmp_path / "prlimit"
    prlimit.symlink_to("/usr/bin/prlimit")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    assert isinstance(choose_sandbox(), NativeSandbox)
    assert isinstance(choose_sandbox("no-docker"), NativeSandbox)
    choose_sandbox.cache_clear()


def test_a_kernel_that_forbids_namespaces_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reason = BubblewrapSandbox().missing()
    assert reason is not None
    assert "No permissions to create new namespace" in reason

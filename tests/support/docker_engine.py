"""A Docker engine for tests, as a pytest plugin, and benchmarks: one that runs here, else Debian's.

Debian's packages are unpacked into a folder, not installed, and the engine runs from there without
a bridge and without iptables, on a socket of its own, for as long as the tests do. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coding_framework.cuda.sandbox.docker import DockerSandbox

PACKAGES = ("docker.io", "containerd", "runc", "libdevmapper1.02.1")


class NoEngineError(Exception):
    """No engine runs here and none can be started; says why."""


@contextmanager
def docker_engine(folder: Path) -> Iterator[str]:
    """What DOCKER_HOST has to be; an engine started here keeps its files in `folder`, which goes
    with it. Raises NoEngineError."""
    usual = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if _answers(usual):
        yield usual
        return
    if os.getuid() != 0:
        raise NoEngineError("no Docker engine runs here, and only root can start one")
    environment = _engine_environment(folder)
    host = f"unix://{folder}/socket"
    command = ["setpriv", "--pdeathsig", "TERM", "dockerd", f"--host={host}"]
    command += ["--iptables=false", "--bridge=none", "--storage-driver=vfs"]
    command += [f"--{name}={folder / name}" for name in ("data-root", "exec-root", "pidfile")]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _wait_for(host, engine, folder / "log")
        yield host
    finally:
        engine.terminate()
        engine.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What DOCKER_HOST has to be. Skips where there is no engine and none can be started."""
    with ExitStack() as running:
        try:
            host = running.enter_context(docker_engine(tmp_path_factory.mktemp("docker")))
        except NoEngineError as e:
            pytest.skip(str(e))
        yield host


@pytest.fixture(scope="session")
def docker_sandbox(docker_host: str) -> DockerSandbox:
    """A sandbox that works, connected to the engine of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", docker_host)
        patch.delenv("CUDA_RL_DOCKER_IMAGE", raising=False)
        sandbox = DockerSandbox()
        assert sandbox.missing() is None
    return sandbox


def _answers(host: str) -> bool:
    import docker  # here alone: tests on a GPU machine do without it
    from docker.errors import DockerException

    try:
        with_engine = docker.DockerClient(host, timeout=5)
        return bool(with_engine.ping())
    except DockerException:
        return False


def _engine_environment(folder: Path) -> dict[str, str]:
    """With dockerd on PATH: installed, or Debian's, unpacked below `folder`."""
    if shutil.which("dockerd"):
        return dict(os.environ)
    if not shutil.which("apt-get"):
        raise NoEngineError("no Docker engine runs here, and there is no apt-get to fetch one with")
    unpacked = folder / "packages"
    unpacked.mkdir()
    fetched = subprocess.run(
        ["apt-get", "download", *PACKAGES],
        cwd=unpacked,
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        why = fetched.stderr.strip().splitlines()[-1:]
        raise NoEngineError(f"no Docker engine runs here, and apt-get cannot fetch one: {why}")
    for package in unpacked.glob("*.deb"):
        subprocess.run(["dpkg", "--extract", package, unpacked], check=True)
        package.unlink()
    libraries = ":".join(str(path) for path in unpacked.glob("usr/lib/*-linux-gnu"))
    path = f"{unpacked}/usr/bin:{unpacked}/usr/sbin:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": libraries}


def _wait_for(host: str, engine: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not _answers(host):
        if engine.poll() is not None or time.monotonic() > deadline:
            raise NoEngineError(f"the Docker engine does not start here: {log.read_text()[-400:]}")
        time.sleep(0.1)

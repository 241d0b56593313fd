"""The judge with a Docker sandbox: compiler and host code in containers of a real engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from coding_framework.cuda.compiler import CUDACompiler, KernelCompilationCache
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.sandbox.docker import DockerSandbox
from coding_framework.types import Candidate, Status
from corpus.model_cheats import HONEST
from support.judge_tasks import (
    DOUBLE,
    DOUBLE_BODY,
    DOUBLE_KERNEL,
    DOUBLE_TASK,
    DOUBLE_TWO_A_THREAD,
    extension,
)

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def judge(docker_sandbox: DockerSandbox, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    cache = KernelCompilationCache(tmp_path_factory.mktemp("builds"))
    compiler = CUDACompiler(cache=cache, sandbox=docker_sandbox)
    return Judge(JudgeConfig(seed=3, host_cpu_s=1), compiler=compiler)


def first(statement: str) -> str:
    """The honest kernel, with a statement of host code before its launch."""
    return extension(DOUBLE_KERNEL, f"{statement}\n  {DOUBLE_BODY}", extra="#include <unistd.h>")


def test_an_honest_kernel_is_correct_and_the_verdict_names_the_sandbox(judge: Judge) -> None:
    verdict = judge.judge(DOUBLE_TASK, Candidate(code=DOUBLE_TWO_A_THREAD))
    assert verdict.status is Status.CORRECT, verdict.reason
    assert verdict.receipt.sandbox == "docker"
    assert verdict.compile is not None
    assert verdict.compile.latency_s > 0.1


HOARD = "static std::vector<char*> all; for (;;) all.push_back(new char[1 << 26]);"
CANDIDATES = {
    "wrong": (extension(DOUBLE_KERNEL.replace("1.0f", "2.0f"), DOUBLE_BODY), "wrong_output"),
    "no C++": ("int x", "compile_error"),
    "reads a file of ours": (f'#include "{Path.home()}/.bashrc"\n{DOUBLE}', "compile_error"),
    "reads a device": (f"#include </dev/zero>\n{DOUBLE}", "compile_error"),
    "spins": (first("for (volatile long i = 0;; i++) {}"), "timeout"),
    "ends its process": (first("_exit(0);"), "runtime_error"),
    "hoards memory": (first(HOARD), "memory_limit"),
    "forks": (first('if (fork() < 0) throw std::runtime_error("no");'), "rejected"),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_other_candidates_get_their_status_and_leave_no_container(
    judge: Judge, docker_host: str, name: str
) -> None:
    code, status = CANDIDATES[name]
    verdict = judge.judge(DOUBLE_TASK, Candidate(code=code))
    assert verdict.status.value == status, verdict.reason
    assert "root:" not in verdict.model_dump_json(exclude={"safety"})
    assert docker.DockerClient(docker_host).containers.list(all=True) == []


@pytest.mark.ci
def test_an_answer_in_python_is_judged_too(judge: Judge) -> None:
    verdict = judge.judge(DOUBLE_TASK, Candidate(code=HONEST))
    assert verdict.status is Status.CORRECT, verdict.reason


@pytest.mark.ci
def test_the_command_judges_in_docker_when_asked_to(docker_host: str) -> None:
    command = [sys.executable, "-m", "coding_framework.cli", "judge", "--task", "relu"]
    command += ["--kernel", str(ROOT / "examples" / "relu.cu"), "--sandbox", "docker", "--fresh"]
    environment = {**os.environ, "DOCKER_HOST": docker_host}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("correct: ")
    assert "sandbox   docker" in done.stdout


# --- the image with compilers of its own ----------------------------------------------------------


def packages(*roots: str) -> set[str]:
    """Debian packages that are installed here, with all that they depend on."""
    form = "${Package}\t${Depends}, ${Pre-Depends}\n"
    listed = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={form}"], capture_output=True, text=True, check=True
    )
    needs = dict(line.split("\t") for line in listed.stdout.splitlines())
    found: set[str] = set()
    left = list(roots)
    while left:
        package = left.pop()
        if package in needs and package not in found:
            found.add(package)
            left += re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[ ,(|:]|$)", needs[package])
    return found


def write_base(archive: Path) -> None:
    """A root file system with a shell, g++ and util-linux, of the files that packages left here."""
    wanted = packages("g++", "libc6-dev", "util-linux", "dash", "coreutils")
    files = subprocess.run(
        ["dpkg-query", "--listfiles", *wanted], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    places = {Path(name).parent.resolve() / Path(name).name for name in files if name[:1] == "/"}
    places |= {parent for place in places for parent in place.parents}  # else of mode 0600
    places = {p for p in places if p.is_relative_to("/usr") and not p.is_relative_to("/usr/share")}
    with tarfile.open(archive, "w") as tar:
        for link in ("bin", "lib", "lib64", "sbin"):
            tar.add(f"/{link}", link, recursive=False)
        for name in ("dev", "etc", "opt", "proc", "run", "sys", "tmp", "work"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for place in sorted(p for p in places if p.is_symlink() or p.exists()):
            tar.add(place, str(place.relative_to("/")), recursive=False)


@pytest.fixture
def image(docker_host: str, tmp_path: Path) -> Iterator[str]:
    """The production image, built without a network on a base made here."""
    if shutil.which("dpkg-query") is None:
        pytest.skip("the base image is made of Debian's packages, and this is another system")
    client = docker.DockerClient(docker_host, timeout=300)
    write_base(tmp_path / "base.tar")
    client.api.import_image_from_file(str(tmp_path / "base.tar"), repository="base", tag="test")
    (tmp_path / "base.tar").unlink()
    client.images.build(
        path=str(ROOT / "docker"),
        dockerfile="sandbox.Dockerfile",
        buildargs={"BASE": "base:test"},
        network_mode="none",
        tag="cuda-rl-sandbox:test",
        rm=True,
    )
    yield "cuda-rl-sandbox:test"
    for tag in ("cuda-rl-sandbox:test", "base:test"):
        client.images.remove(tag, force=True)


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_the_production_image_is_built_without_a_network_and_compiles(
    image: str, docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    sandbox = DockerSandbox(image)
    assert sandbox.missing() is None
    compiler = CUDACompiler(cache=KernelCompilationCache(tmp_path), sandbox=sandbox)
    result = compiler.compile_source(DOUBLE)
    assert result.success, result.reason

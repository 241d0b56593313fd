"""The judge with a Docker sandbox: compiler and host code in containers of a real engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import docker
import pytest
from judge_tasks import (
    DOUBLE,
    DOUBLE_BODY,
    DOUBLE_KERNEL,
    DOUBLE_TASK,
    DOUBLE_TWO_A_THREAD,
    extension,
)

from coding_framework.cuda.compiler import CUDACompiler, KernelCompilationCache
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.sandbox.docker import DockerSandbox
from coding_framework.types import Candidate, Status

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
    "forks": (first('if (fork() < 0) throw std::runtime_error("no");'), "runtime_error"),
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


def test_the_command_judges_in_docker_when_asked_to(docker_host: str) -> None:
    command = [sys.executable, "-m", "coding_framework.cli", "judge", "--task", "relu"]
    command += ["--kernel", str(ROOT / "examples" / "relu.cu"), "--sandbox", "docker"]
    environment = {**os.environ, "DOCKER_HOST": docker_host}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("correct: ")
    assert "sandbox   docker" in done.stdout

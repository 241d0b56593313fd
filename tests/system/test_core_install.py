"""`pip install .` without an extra, beside the oldest and the newest torch of the range: the judge
works, and the torch stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
MOST_ADDED = 34
"""Packages: with the 11 of torch's CPU build 45 in all."""
JUDGES_TESTS = ("tests/integration/test_judge.py", "tests/integration/model_new")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def installed(python: Path) -> dict[str, str]:
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json").stdout)
    return {entry["name"].lower().replace("-", "_"): entry["version"] for entry in listed}


def install(python: Path, *packages: str) -> None:
    """By uv where it is, which links what its cache has."""
    uv = shutil.which("uv", path=f"{os.environ['PATH']}:{ROOT}/.tools/bin")
    by = [str(python), "-m", "pip", "install"]
    if uv is not None:
        by = [uv, "pip", "install", "--python", str(python)]
    done = run(*by, "--quiet", *packages)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=["2.6.0", "2.15.0"])
def bin_of_core(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The programs of an environment that had torch alone, and now the judge beside it."""
    folder = tmp_path_factory.mktemp("core") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install(python, f"torch=={request.param}")
    before = installed(python)
    install(python, ".")
    after = installed(python)
    assert {name: after.get(name) for name in before} == before
    assert len(after) - len(before) <= MOST_ADDED
    return folder / "bin"


def test_the_judges_tests_pass(bin_of_core: Path) -> None:
    python = bin_of_core / "python"
    tools = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")
    install(python, *tools, "scipy")
    done = run(python, "-m", "pytest", "-q", "-o", "addopts=--import-mode=importlib", *JUDGES_TESTS)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_judge_gives_its_verdicts(bin_of_core: Path) -> None:
    for kernel, status in (("relu.cu", "correct"), ("relu_wrong.cu", "wrong_output")):
        path = Path("examples") / kernel
        command = ("judge", "--task", "relu", "--kernel", path, "--json", "--fresh")
        done = run(bin_of_core / "cuda-rl", *command)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["status"] == status


def test_judge_many_gives_a_verdict_a_line(bin_of_core: Path) -> None:
    done = run(bin_of_core / "cuda-rl", "judge-many", "--tasks-and-kernels", "examples/pairs.jsonl")
    assert done.returncode == 0, done.stderr
    assert all("status" in json.loads(line) for line in done.stdout.splitlines())


def test_the_doctor_says_that_this_machine_can_judge_and_how_to_train(bin_of_core: Path) -> None:
    done = run(bin_of_core / "cuda-rl", "doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ready"], report["trainers"]) == (0, True, False)
    fixes = {check["name"]: check["fix"] for check in report["checks"]}
    assert "coding-framework[train]" in fixes["SFT and RL: TRL, verl, Ray"]

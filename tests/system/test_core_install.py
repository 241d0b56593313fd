"""`pip install` without the extra `train`, in a fresh environment: the judge works."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.commands.failures import TRAINING_MODULES

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def bin_of_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but `pip install .`; by uv where it is, which
    links what its cache has."""
    folder = tmp_path_factory.mktemp("core") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    uv = shutil.which("uv")
    installer = [uv, "pip", "install", "--python", folder / "bin" / "python"]
    if uv is None:
        installer = [folder / "bin" / "pip", "install"]
    done = run(*[part for part in installer if part is not None], "--quiet", ".")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_none_of_the_trainers_is_installed(bin_of_core: Path) -> None:
    listed = run(bin_of_core / "python", "-m", "pip", "list", "--format", "json")
    names = {entry["name"].lower().replace("-", "_") for entry in json.loads(listed.stdout)}
    assert not names & TRAINING_MODULES
    assert "torch" in names


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

"""A wheel works outside of the clone: its data files are in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from coding_framework import __version__

pytestmark = [pytest.mark.system, pytest.mark.ci, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cuda_rl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of a bare environment that has the wheel, and sees this one's packages. A line
    of a .pth file adds a folder, and not what that folder's own .pth files name: the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = shutil.which("uv", path=f"{os.environ['PATH']}:{ROOT}/.tools/bin")
    if uv is None:
        pytest.skip("needs uv, which builds the wheel")
    subprocess.run([uv, "build", "--wheel", "--quiet", "-o", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel]
    subprocess.run(command, check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "venv" / "bin" / "cuda-rl"


def run(program: Path, folder: Path, *arguments: str | Path) -> str:
    command = [program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_says_its_version_and_judges_a_kernel(cuda_rl: Path, tmp_path: Path) -> None:
    assert re.search(rf"\b{re.escape(__version__)}\b", run(cuda_rl, tmp_path, "--version"))
    where = "import coding_framework as c; print(c.__file__)"
    assert str(ROOT) not in run(cuda_rl.with_name("python"), tmp_path, "-c", where)
    kernel = shutil.copy(ROOT / "examples" / "relu.cu", tmp_path)
    judge = ("judge", "--task", "relu", "--kernel", kernel, "--json", "--fresh")
    assert json.loads(run(cuda_rl, tmp_path, *judge))["status"] == "correct"
    prompts = (
        "from coding_framework.integrations.kernels import prompt_of; print(prompt_of('relu'))"
    )
    assert "torch.relu" in run(cuda_rl.with_name("python"), tmp_path, "-c", prompts)

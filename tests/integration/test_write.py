"""`cuda-rl write` with the real judge: a module of one's own gets a right kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def cuda_rl(*argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coding_framework.cli", *argv]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_kernel_is_written_and_judged_correct(tmp_path):
    done = cuda_rl(
        "write", "--task", str(ROOT / "examples" / "scaled_tanh.py"), "--backend", "emulator",
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("correct")
    assert "__global__" in (tmp_path / "scaled_tanh.cu").read_text()


@pytest.mark.parametrize(("level", "said"), [("naive", "naive"), ("fast", "vectorized")])
def test_the_level_that_is_written_is_said(tmp_path, level, said):
    done = cuda_rl("write", "--task", "relu", "--level", level, "--backend", "emulator",
                   folder=tmp_path)  # fmt: skip
    assert f"level {said}, written in" in done.stderr
    assert ("load_four" in (tmp_path / "relu.cu").read_text()) == (level == "fast")


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "relu.cu").write_text("mine")
    done = cuda_rl("write", "--task", "relu", folder=tmp_path)
    assert done.returncode == 2
    assert "is there already" in done.stderr
    assert (tmp_path / "relu.cu").read_text() == "mine"

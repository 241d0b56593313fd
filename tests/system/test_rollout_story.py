"""The rollout that docs/deployment.md tells of happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STORY = Path(__file__).parents[2] / "examples" / "deployment" / "rollout.sh"


@pytest.mark.slow
def test_the_story_rolls_a_failing_candidate_back_and_promotes_a_better_one(tmp_path: Path) -> None:
    environment = os.environ | {
        "CUDA_RL": f"{sys.executable} -m coding_framework.cli",
        "PYTHON": sys.executable,
    }
    done = subprocess.run(
        ["sh", str(STORY), str(tmp_path)],
        capture_output=True, text=True, timeout=1200, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ROLLED_BACK (error: too often)" in done.stdout
    assert "kernels: v3, before v1" in done.stdout
    assert "verified: 2 rollouts" in done.stdout

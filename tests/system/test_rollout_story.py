"""The rollouts that docs/deployment.md and docs/serving.md tell of happen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.deployment.store import DeploymentStore
from support.replayed import replayed

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "deployment"
STORY = EXAMPLES / "rollout.sh"


def assert_replayed(database: Path, rollouts: int) -> None:
    """Every decision follows from the log."""
    store = DeploymentStore(database)
    found = replayed(store)
    assert (found.difference, len(store.experiments())) == (None, rollouts)
    assert found.decisions >= rollouts


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
    assert_replayed(tmp_path / "deployment.sqlite", rollouts=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_story_of_two_adapters_holds_where_the_model_server_is_a_script(tmp_path: Path) -> None:
    """All but vLLM and the GPU."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fake = (
        f"{sys.executable} {EXAMPLES / 'fake_upstream.py'} --model base"
        f" --kernel {ROOT / 'examples' / 'relu.cu'} --kernel {ROOT / 'examples' / 'relu_wrong.cu'}"
    )
    for name in ("model", "first", "second"):
        (tmp_path / name).mkdir()
    environment = os.environ | {
        "PYTHON": sys.executable, "JUDGE": "emulator", "VLLM": fake, "PORT": str(port),
    }  # fmt: skip
    done = subprocess.run(
        ["sh", str(EXAMPLES / "vllm.sh"), "model", "first", "second", "out"],
        capture_output=True, text=True, timeout=1100, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "['base', 'first', 'second']" in done.stdout
    assert "is correct for relu" in done.stdout
    assert_replayed(tmp_path / "out" / "deployment.sqlite", rollouts=1)
    assert done.stdout.rstrip().endswith("# all of it held")

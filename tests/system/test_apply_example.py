"""The example that replaces modules of a model runs without a GPU, from judge to comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_the_example_runs_on_the_emulator() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "apply_to_a_model.py", "--device", "emulator"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{\n") :])
    assert found["largest_difference"] < 1e-5
    assert found["hits"] == {"bias_gelu": 4, "add_norm": 8, "scaled_softmax": 4}
    assert not any(found["misses"].values())

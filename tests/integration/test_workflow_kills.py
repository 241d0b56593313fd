"""SIGKILL and a real checkpoint file; tests/soak/workflow_kills.py does it many times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[1] / "soak" / "workflow_kills.py"


@pytest.mark.ci
def test_a_killed_workflow_resumes_to_the_same_result_and_judges_nothing_twice(tmp_path: Path):
    output = tmp_path / "kills.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "2", "--seed", "5", "--output", output],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(output.read_text())
    assert [bar["holds"] for bar in figures["bars"]] == [True, True, True]

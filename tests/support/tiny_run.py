"""The RL script with a tiny model: sizes, command line, path of Ray's workers, and its result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from coding_framework.training.verl_integration import RLResult

TESTS = Path(__file__).parents[1]
STEPS = 3
SIZES = {
    "num_episodes": STEPS,
    "max_prompt_tokens": 256,
    "max_response_tokens": 16,
    "learning_rate": 1e-3,
    "judge": "support.tiny_rl:make_judge",
    "judge_args": {"fault_share": 0.08},
    "agents": "support.tiny_rl:make_agents",
    "reward": "support.tiny_rl:TextReward",
    "max_fault_share": 0.5,
}


def worker_path() -> str:
    """PYTHONPATH for the processes of a run: ours, before what it was."""
    return os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))


def script(model: Path, output: Path, *, device: str = "cpu", **changes: object) -> list[str]:
    """The root script with a recipe of these sizes."""
    recipe = output.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump({"device": device, "rl": {**SIZES, **changes}}))
    return [
        sys.executable, str(TESTS.parent / "run_multiturn_rl_training.py"),
        "--config", str(recipe), "--generator-checkpoint", str(model),
        "--output-dir", str(output),
    ]  # fmt: skip


def finished(command: list[str]) -> RLResult:
    """What the script prints at its end."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return RLResult.model_validate_json(ran.stdout)

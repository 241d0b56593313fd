"""The examples of docs/integrations.md: each trainer makes a real step with our verdicts.

The extras are installed in environments of their own, which have nothing of `train`; a model of
135M answers on the CPU, and its rewards are what they are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "integrations"
MODEL = "SmolLM2-135M-Instruct"
CPU = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **CPU, **environment},
    )  # fmt: skip


def environment_of(extra: str, folder: Path) -> Path:
    """The programs of an environment with the judge and that extra alone."""
    uv = shutil.which("uv", path=f"{os.environ['PATH']}:{ROOT}/.tools/bin")
    if uv is None:
        pytest.skip("needs uv, which the locked extras are installed by")
    options = ("--frozen", "--quiet", "--extra", extra)
    done = run(uv, "sync", *options, UV_PROJECT_ENVIRONMENT=str(folder))
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """SmolLM2-135M-Instruct behind OpenAI's protocol."""
    command = [sys.executable, "-m", "coding_framework.cli", "serve-policy", MODEL, "--port", "0"]
    more = ["--name", "model", "--threads", "1", "--max-context", "8192", "--device", "cpu"]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"{server.stdout.readline().split()[-1]}/v1"
        server.terminate()


def test_trl_makes_a_step(tmp_path: Path) -> None:
    done = run(
        *(sys.executable, EXAMPLES / "trl_grpo.py", "--tasks", "relu", "--group", "2"),
        *("--max-new-tokens", "32", "--output-dir", tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "step 1: reward" in done.stdout
    assert (tmp_path / "model.safetensors").is_file()


def test_the_loop_on_one_page_answers_judges_and_updates() -> None:
    few = ("--tasks", "1", "--group", "2", "--steps", "1", "--warm-up", "1", "--layers", "1")
    done = run(sys.executable, EXAMPLES.parent / "rl_loop.py", *few)
    assert done.returncode == 0, done.stderr
    assert "shown 1 times" in done.stdout
    assert re.search(r"step 1: .*; reward \d\.\d+, gradient norm \d", done.stdout)


def test_verifiers_plays_an_episode_of_two_turns(tmp_path: Path, model_url: str) -> None:
    programs = environment_of("verifiers", tmp_path / "venv")
    done = run(
        *(programs / "vf-eval", "cuda-kernels", "--env.taskset.tasks", '["relu"]'),
        *("--env.turns", "2", "--model", "model", "--client.base-url", model_url),
        *(
            "--sampling.max-tokens",
            "32",
            "--no-push",
            "--no-rich",
            "--output-dir",
            tmp_path / "out",
        ),
        PYTHONPATH=str(EXAMPLES),
        PATH=f"{programs}:{os.environ['PATH']}",
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("out/*/traces.jsonl")
    (episode,) = map(json.loads, file.read_text().splitlines())
    (trace,) = episode["traces"]
    assert episode["ok"], trace["errors"]
    assert trace["metrics"]["turns"] == 2
    assert trace["rewards"]["verdict"]["score"] >= 0
    assert trace["info"]["verdict"]["task"] == "relu"


def test_inspect_scores_a_sample(tmp_path: Path, model_url: str) -> None:
    programs = environment_of("inspect", tmp_path / "venv")
    logs = tmp_path / "logs"
    done = run(
        *(programs / "inspect", "eval", "examples/integrations/inspect_kernels.py"),
        *("-T", "tasks=relu", "--model", "openai-api/local/model", "--max-tokens", "32"),
        *("--display", "plain", "--log-dir", logs, "--log-format", "json"),
        LOCAL_API_KEY="none",
        LOCAL_BASE_URL=model_url,
    )
    assert done.returncode == 0, done.stderr
    (log,) = (json.loads(file.read_text()) for file in logs.glob("*.json"))
    assert log["status"] == "success"
    (sample,) = log["samples"]
    (score,) = sample["scores"].values()
    assert set(score["value"]) == {"correct", "compiled", "reward"}
    assert score["metadata"]["verdict"]["task"] == "relu"

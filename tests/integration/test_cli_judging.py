"""`cuda-rl judge` and `judge-many` with the real judge: the contract that scripts rely on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.types import Verdict

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
RIGHT, WRONG = ROOT / "examples" / "relu.cu", ROOT / "examples" / "relu_wrong.cu"
OWN_TASK = ROOT / "examples" / "scaled_tanh.py"
ANSWER = ROOT / "examples" / "scaled_tanh_answer.py"
KEYS = {
    "status", "reason", "task", "candidate_sha256", "backend", "compile", "tests", "timing",
    "counters", "safety", "pitfalls", "cheats", "receipt",
}  # fmt: skip


def cuda_rl(
    *argv: str, stdin: bytes = b"", python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, *python, "-m", "coding_framework.cli", *argv]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=540, check=False)


def test_a_right_kernel_on_stdin_gives_one_json_object_of_the_contract():
    command = ("judge", "--task", "relu", "--kernel", "-", "--json")
    done = cuda_rl(*command, "--fresh", stdin=RIGHT.read_bytes())
    assert done.returncode == 0, done.stderr
    assert b"judged before" not in done.stderr
    (line,) = done.stdout.splitlines()
    verdict = json.loads(line)
    assert set(verdict) == KEYS
    assert verdict["status"] == "correct"
    assert all(test["passed"] for test in verdict["tests"])
    assert verdict["timing"]["modelled"] is True
    assert verdict["timing"]["eager_ms"] is None
    assert verdict["timing"]["speedup_vs_naive"] == pytest.approx(1.0, rel=0.2)
    assert verdict["receipt"]["sandbox"]
    assert verdict["receipt"]["device"] == "emulator of NVIDIA H200"
    assert Verdict.model_validate_json(line).correct

    again = cuda_rl(*command, stdin=RIGHT.read_bytes(), python=("-X", "importtime"))
    assert again.stdout == done.stdout
    assert b"judged before, on equal terms: --fresh judges it anew" in again.stderr
    assert not re.search(rb"\| +torch\n", again.stderr), "a verdict from before needs no PyTorch"


def test_bytes_that_are_no_kernel_are_judged_for_people():
    done = cuda_rl("judge", "--task", "relu", "--kernel", "-", stdin=b"\xff\x00\x1b[2J")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"compile_error: ")
    assert b"\x1b" not in done.stdout


@pytest.mark.ci
def test_pairs_are_judged_in_parallel_and_a_second_run_does_only_what_is_left(tmp_path):
    """The second file has two lines more that cannot be used: each is told, and costs itself."""
    pairs, output = tmp_path / "pairs.jsonl", tmp_path / "verdicts.jsonl"
    lines = [
        {"id": "right", "task": "relu", "kernel": str(RIGHT)},
        {"id": "wrong", "task": "relu", "kernel": str(WRONG)},
        {"id": "none", "task": "relu", "code": "int x"},
        {"id": "answer", "task": str(OWN_TASK), "kernel": str(ANSWER)},
    ]
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ("judge-many", "--tasks-and-kernels", str(pairs), "--output", str(output))
    first = cuda_rl(*command)
    assert first.returncode == 0, first.stderr
    streamed = [json.loads(line) for line in first.stdout.splitlines()]
    statuses = {entry["id"]: entry["status"] for entry in streamed}
    assert statuses == {
        "right": "correct",
        "wrong": "wrong_output",
        "none": "compile_error",
        "answer": "correct",
    }
    assert output.read_bytes() == first.stdout

    kept = output.read_bytes().splitlines(keepends=True)[:3]
    output.write_bytes(b"".join(kept) + b'{"id": "cut')
    unknown = {"id": "unknown", "task": "nosuch", "code": "int x"}
    pairs.write_text(f"{{broken\n{json.dumps(unknown)}\n{pairs.read_text()}")
    second = cuda_rl(*command)
    assert second.returncode == 2, second.stderr
    told = {entry["id"]: entry for entry in map(json.loads, second.stdout.splitlines())}
    assert len(told) == 3
    assert "not JSON" in told["line 1"]["error"]
    assert "no task is called 'nosuch'" in told["unknown"]["error"]
    assert len(output.read_bytes().splitlines()) == 6

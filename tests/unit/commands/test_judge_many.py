"""`cuda-rl judge-many` reads pairs; a line that is wrong costs itself alone."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys

import pytest

from coding_framework.commands.judge_many import Pair, read_pairs
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError

pytestmark = pytest.mark.unit


def test_pairs_are_read_relative_to_their_file(tmp_path):
    (tmp_path / "k.cu").write_text("int k;")
    pairs = tmp_path / "pairs.jsonl"
    lines = [
        {"id": 1, "task": "relu", "kernel": "k.cu"},
        {"id": "b", "task": "t.json", "code": "int b;"},
    ]
    pairs.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert read_pairs(pairs) == [
        Pair("1", "relu", "int k;"),
        Pair("b", str(tmp_path / "t.json"), "int b;"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "line 3: not JSON"),
        (b"\xff\xfe", "line 3: not JSON"),
        (b"[]", 'line 3: give an object with "id", "task"'),
        (b'{"id": 1, "task": "relu"}', 'either "kernel" (a file) or "code"'),
        (b'{"id": 1, "task": "relu", "code": null}', 'either "kernel" (a file) or "code"'),
        (
            b'{"id": 1, "task": "relu", "code": "", "kernel": "k"}',
            'either "kernel" (a file) or "code"',
        ),
        (b'{"id": "good", "task": "r", "code": ""}', "the id 'good' is there twice"),
        (b'{"id": 1, "task": "r", "kernel": "nosuch.cu"}', "cannot be read"),
        (b'{"id": 1, "task": "r", "kernel": "int k;\\nint j;"}', 'give a source as "code"'),
        (b'{"id": 1, "task": "r", "kernel": "k\\u0000.cu"}', "cannot be read"),
        (b"[" * 100_000, "line 3: not JSON"),
        (b'{"id": 1, "task": "r", "code": ' + b"[" * 100_000, "line 3: not JSON"),
    ],
)
def test_a_wrong_line_is_named_and_the_others_stay(tmp_path, text, told):
    path = tmp_path / "pairs.jsonl"
    good = b'{"id": "good", "task": "relu", "code": "int k;"}\n'
    path.write_bytes(good + b"\n" + text + b"\n")
    first, other = read_pairs(path)
    assert first == Pair("good", "relu", "int k;")
    assert told in other.wrong


def test_a_file_that_is_not_there_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_pairs(tmp_path / "nosuch.jsonl")


def test_a_second_one_with_the_same_output_is_told_who_writes_to_it(tmp_path):
    """And what a killed one left keeps nobody out: the kernel drops its lock."""
    pairs, output, other = (tmp_path / name for name in ("p.jsonl", "v.jsonl", "link.jsonl"))
    pairs.write_text("")
    other.symlink_to(output)
    command = [sys.executable, "-m", "coding_framework.cli", "judge-many"]
    command += ["--tasks-and-kernels", str(pairs), "--output", str(other)]
    with (tmp_path / ".v.jsonl.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr == (
        f"cuda-rl: another judge-many (process 4711) writes to {other}: wait for it, or choose "
        "another --output\n"
    )
    third = subprocess.run(command, capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr


@pytest.mark.parametrize(
    "name",
    [
        "x" * 100_000,
        "a/" * 300,
        "x" * 300 + ".py",
        "x" * 300 + ".json",
        "r\0",
        "r\0.py",
        "r\0.yaml",
    ],
)
def test_a_name_that_no_file_can_have_is_no_task(name):
    with pytest.raises(UsageError) as told:
        find_task(name)
    assert len(str(told.value)) < 500


RAISES = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        {line}
        return torch.linalg.cholesky(x)


def get_inputs():
    m = torch.randn(4, 12, 12)
    return [m @ m.transpose(1, 2) + 12 * torch.eye(12)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("torch.linalg.cholesky(-x)", "line 7: _LinAlgError"),
        ("exit()", "line 7: SystemExit"),
        ("1 / 0", "line 7: Zero"),
    ],
)
def test_what_a_callers_code_raises_is_a_sentence_with_his_line(tmp_path, line, told):
    (tmp_path / "t.py").write_text(RAISES.format(line=line))
    with pytest.raises(UsageError, match=told):
        find_task(str(tmp_path / "t.py"))

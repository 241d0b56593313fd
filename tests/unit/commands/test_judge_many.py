"""`cuda-rl judge-many` reads pairs and names the line that is wrong."""

from __future__ import annotations

import json

import pytest

from coding_framework.commands.judge_many import read_pairs
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
        {"id": "1", "task": "relu", "code": "int k;"},
        {"id": "b", "task": str(tmp_path / "t.json"), "code": "int b;"},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1: not JSON"),
        ("[]", 'line 1: give an object with "id", "task"'),
        ('{"id": 1, "task": "relu"}', 'either "kernel" or "code"'),
        ('{"id": 1, "task": "relu", "code": "", "kernel": "k"}', 'either "kernel" or "code"'),
        ('{"id": 1, "task": "r", "code": ""}\n' * 2, "the id '1' is there twice"),
        ('{"id": 1, "task": "r", "kernel": "nosuch.cu"}', "cannot be read"),
    ],
)
def test_wrong_pairs_are_named_by_line(tmp_path, text, told):
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_pairs(path)
    assert told in str(error.value)

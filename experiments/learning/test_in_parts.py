"""Modules of a folder in parts: what is cut, cut again and joined."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import in_parts

from coding_framework.data.registry import find_task
from coding_framework.store.folder import EvalFolder
from coding_framework.types import Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit
MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(torch.relu(x) * 2, dim=1)

def get_inputs():
    return [torch.randn(256, 512)]

def get_init_inputs():
    return []
"""
KERNEL = """#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def evaluated(folder: Path, suite: Path, solves: int) -> Path:
    """An evaluation that finds a kernel of the first parts of a suite."""
    lines = []
    for at, file in enumerate(sorted(suite.glob("*.json"))):
        task = find_task(str(file))
        status = Status.CORRECT if at < solves else Status.COMPILE_ERROR
        turn = make_turn(0, make_verdict(status, 2.0, task=task.name), code=KERNEL)
        lines.append(make_state(turn, task=task.name, name=file.stem).model_dump_json())
    path = EvalFolder(folder).conversations
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_what_is_not_solved_is_cut_again_and_what_is_is_joined(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "one.py").write_text(MODULE)
    (modules / "other.py").write_text(MODULE.replace("torch.relu(x)", "x.topk(9)[0]"))
    work = tmp_path / "work"
    assert in_parts.cut(work, [modules]) == {"modules": 2, "without": 0, "parts": 3}
    first = evaluated(tmp_path / "first", work / "parts", solves=0)
    assert in_parts.join(work, [first]) == {"joined": 0, "unsolved": 2}
    left = in_parts.again(work, first)
    alone = {file.stem for file in (work / "alone").glob("*.json")}
    assert {file.stem for file in (work / "again").glob("*.json")} <= alone
    lines = [
        json.dumps({
            "key": f"d1ge57 {task}/{sample}#0",
            "answer": {"generation": {"text": f"{task} {sample}"}},
        })
        for task in sorted(alone) for sample in range(2)
    ]  # fmt: skip
    (tmp_path / "asked").mkdir()
    EvalFolder(tmp_path / "asked").answers.write_text(
        "".join(f"{line}\n" for line in lines) + '{"key": "d1ge57 a line that a kill ended'
    )
    assert in_parts.asked_before(work, tmp_path / "asked") == 2 * left["parts"]
    asked = [json.loads(line) for line in (work / "again.jsonl").read_text().splitlines()]
    assert all(one["answer"] == f"{one['task']} {one['sample']}" for one in asked)
    second = evaluated(tmp_path / "second", work / "again", solves=left["parts"])
    done = in_parts.join(work, [first, second])
    assert done["joined"] + done["unsolved"] == 2
    joined = sorted((work / "joined" / "modules").glob("*.cu"))
    assert len(joined) == done["joined"]
    assert all("namespace part1" in file.read_text() for file in joined)
    assert json.loads((work / "join.json").read_text())["joined"] == [file.stem for file in joined]

"""The skill for coding agents: it is written where they look, and each of its commands works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coding_framework.cli import build_parser, main

pytestmark = pytest.mark.system

LAYERS = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return torch.relu(x) * self.weight
"""


@pytest.fixture
def skill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["skill", "install", "--dir", str(tmp_path)]) == 0
    return Path(capsys.readouterr().out.strip())


def test_it_has_the_head_that_agents_read_and_is_short(skill: Path) -> None:
    text = skill.read_text()
    assert re.match(r"---\nname: cuda-kernel-judge\ndescription: .{50,500}\n---\n", text)
    assert len(text) < 8000, "about 2,000 tokens"


@pytest.mark.ci
def test_each_of_its_commands_works(skill: Path, tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS)
    blocks = re.findall(r"^```bash\n(.*?)^```", skill.read_text(), re.M | re.S)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) >= 6
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "cuda-rl"
        done = subprocess.run(
            [sys.executable, "-m", "coding_framework.cli", *words],
            cwd=tmp_path, env={**os.environ, "PYTHONSAFEPATH": "1"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout.strip()


def test_every_verdict_and_command_that_it_names_is_there(skill: Path) -> None:
    from coding_framework.types import Status

    text = skill.read_text()
    table = text[text.index("| verdict |") : text.index("## Making")]
    first = [row.split("|")[1] for row in table.splitlines()[2:] if "|" in row]
    named = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    assert named <= {status.value for status in Status}
    usage = build_parser().format_help()
    assert all(name in usage for name in re.findall(r"cuda-rl (\w+)", text))


def test_another_skill_of_that_place_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    theirs = tmp_path / ".claude/skills/cuda-kernel-judge/SKILL.md"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("of the user's own")
    assert main(["skill", "install", "--claude"]) == 2
    assert "is another skill" in capsys.readouterr().err
    assert main(["skill", "install", "--codex"]) == 0
    assert (tmp_path / ".codex/skills/cuda-kernel-judge/SKILL.md").is_file()
    assert main(["skill", "install"]) == 2

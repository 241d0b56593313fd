"""The archive as SFT's examples: of every level, judged, and told where from."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from coding_framework.agents.models import hub_answers
from coding_framework.data import examples
from coding_framework.data.sakana_loader import COLUMNS
from coding_framework.data.synthesis.receipts import Job, KernelReceipt
from coding_framework.errors import UsageError
from coding_framework.run import archive, model_folder
from coding_framework.run.archive import archive_examples
from coding_framework.training.sft_config import SFTConfig
from coding_framework.types import Role, Status, TrainingExample
from support.made_conversations import make_task, make_verdict

pytestmark = pytest.mark.unit

MODULE = """import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {level}
def get_inputs():
    return [torch.randn(16, 64)]
def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def cheap_synthesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the catalogue takes seconds, and its examples are not what these tests are about."""

    def training_examples(role: Role, n: int, seed: int, **_: Any) -> list[TrainingExample]:
        return [
            TrainingExample(id=f"made/{i}", task=make_task(), role=role, kind="generate", code="x")
            for i in range(n)
        ]

    monkeypatch.setattr(examples, "training_examples", training_examples)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of three levels, four kernels of each of two operations; every third is wrong by our
    judge, which is replaced here."""
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    judged = 0

    def judge(jobs: Iterable[Job], file: Path, workers: int | None) -> tuple[int, int]:
        nonlocal judged
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lines:
            for job in jobs:
                judged += 1
                status = Status.WRONG_OUTPUT if judged % 3 == 0 else Status.CORRECT
                digest, kernel = job.key
                receipt = KernelReceipt(
                    task=job.task.name, level=job.level, task_digest=digest, kernel_sha256=kernel,
                    verdict=make_verdict(status), verdict_digest="d",
                )  # fmt: skip
                lines.write(receipt.model_dump_json() + "\n")
        return 0, judged

    monkeypatch.setattr(archive, "judge_jobs", judge)
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for level in (1, 2, 3):
            for number in range(8):
                row: dict[str, Any] = dict.fromkeys(COLUMNS)
                row |= {
                    "Op_Name": f"{level}_op{number // 4}", "Level_ID": level, "Task_ID": 1,
                    "Kernel_Name": f"k{number}", "CUDA_Code": f"// {level} {number}",
                    "PyTorch_Code_Module": MODULE.format(level=level), "Correct": True,
                }  # fmt: skip
                file.write(json.dumps(row) + "\n")
    return path


def test_examples_are_of_all_levels_and_of_different_tasks(rows: Path) -> None:
    found = archive_examples(str(rows), 6)
    assert found.told == f"{rows}: 2 of level1, 2 of level2, 2 of level3"
    assert len({example.id for example in found.examples}) == 6
    assert {example.role for example in found.examples} == {Role.GENERATOR}
    assert len({example.task.name for example in found.examples}) >= 4


@pytest.mark.parametrize(("data", "share"), [("archive", 4), ("mixed", 2), ("synthetic", 0)])
def test_sft_learns_them_and_says_so(rows: Path, data: Any, share: int) -> None:
    config = SFTConfig(
        data=data, archive=str(rows), num_examples=4, optimizer_examples=1, max_task_ops=1
    )
    learnt, told = model_folder._examples(config, "starter")
    mine = [e for e in learnt if e.role is Role.GENERATOR]
    assert sum(e.id.startswith("archive/") for e in mine) == min(share, len(mine))
    assert (str(rows) in told, "synthesised" in told) == (share > 0, data != "archive")
    assert sum(e.role is Role.OPTIMIZER for e in learnt) == 1


def test_without_the_hub_one_line_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    assert not hub_answers()
    config = SFTConfig(data="archive", num_examples=2, optimizer_examples=0, max_task_ops=1)
    learnt, told = model_folder._examples(config, "starter")
    assert told == f"synthesised kernels, for {config.archive} could not be read"
    assert len(learnt) == 2


def test_a_file_that_is_not_the_archives_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n' * 30)
    with pytest.raises(UsageError, match="do not have the archive's columns"):
        archive_examples(str(file), 3)

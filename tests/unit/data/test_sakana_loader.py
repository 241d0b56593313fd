"""The archive's rows: all usable ones load, every bad one is counted, nothing is trusted."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_framework.commands.build_data import build_archive_sft
from coding_framework.data.example_store import ExampleStore
from coding_framework.data.sakana_loader import (
    SakanaDataLoader,
    archive_examples_of,
    parse_row,
)
from coding_framework.data.synthesis.receipts import Job, KernelReceipt, Key, task_digest
from coding_framework.errors import UsageError
from coding_framework.types import Finding, Status, TestResult, Verdict

pytestmark = pytest.mark.unit

MODULE = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

batch_size = 512

def get_inputs():
    return [torch.randn(batch_size, 256)]

def get_init_inputs():
    return []
"""


def _row(i: int, **changes: Any) -> dict[str, Any]:
    """A row of the archive's schema, made for the tests."""
    row: dict[str, Any] = {
        "Op_Name": "19_ReLU",
        "Level_ID": 1,
        "Task_ID": 19,
        "Kernel_Name": f"kernel_{i}",
        "CUDA_Runtime": 0.02,
        "PyTorch_Native_Runtime": 0.03,
        "PyTorch_Compile_Runtime": 0.03,
        "CUDA_Speedup_Native": 1.5,
        "CUDA_Speedup_Compile": 1.5,
        "CUDA_Code": f"// kernel {i}\n",
        "PyTorch_Code_Module": MODULE,
        "PyTorch_Code_Functional": "",
        "Correct": True,
        "Max_Diff": 0.0,
        "Error": None,
        "NCU_Profile": "{'metrics': {'SM Busy': {'unit': '%', 'avg_value': 42.7}}}",
        "Torch_Profile": None,
        "Clang_Tidy": "{'stdout': ''}",
        "__index_level_0__": i,
    }
    return row | changes


WRONG = {"Correct": False, "CUDA_Runtime": None, "CUDA_Speedup_Native": 0.0, "NCU_Profile": None}


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _mixed() -> list[dict[str, Any]]:
    rows = [_row(i) for i in range(8)]
    rows += [_row(i, **WRONG, Max_Diff=6415.4) for i in range(8, 11)]
    return rows + [_row(i, **WRONG, Max_Diff=None, Error="ninja failed") for i in range(11, 13)]


@pytest.mark.parametrize("kind", ["file", "folder", "parquet"])
def test_rows_are_read_from_files_and_folders_with_their_outcomes(
    tmp_path: Path, kind: str
) -> None:
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(_mixed()), tmp_path / "level_1.parquet")
    else:
        _write(tmp_path / "level_1.jsonl", _mixed())
    loader = SakanaDataLoader(tmp_path / "level_1.jsonl" if kind == "file" else tmp_path)
    assert len(list(loader.rows())) == 13
    assert loader.report.outcomes == {"correct": 8, "mismatched": 3, "failed": 2}


def test_bad_rows_are_counted_by_reason_and_the_others_load(tmp_path: Path) -> None:
    bad: list[Any] = [
        {k: v for k, v in _row(0).items() if k != "Correct"},
        _row(1, CUDA_Code=None),
        _row(2, CUDA_Code="   "),
        _row(3, Level_ID="one"),
        _row(4, CUDA_Code="x" * (2 << 20)),
        [1, 2, 3],
    ]
    path = _write(tmp_path / "rows.jsonl", [_row(9), *bad])
    with path.open("ab") as file:
        file.write(b'{"Op_Name": "\xff\xfe"}\n{"cut off')
    loader = SakanaDataLoader(path)
    assert len(list(loader.rows())) == 1
    assert loader.report.skipped == {
        "missing Correct": 1,
        "no CUDA_Code": 2,
        "wrong type of level": 1,
        "oversized CUDA_Code": 1,
        "not an object": 1,
        "not UTF-8": 1,
        "not JSON": 1,
    }
    assert "skipped: 1 missing Correct" in loader.report.summary()


def test_a_truncated_parquet_file_is_counted_and_the_next_one_read(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(_mixed()), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    _write(tmp_path / "b.jsonl", [_row(0)])
    loader = SakanaDataLoader(tmp_path)
    assert len(list(loader.rows())) == 1
    assert loader.report.skipped == {"unreadable file a.parquet": 1}


def test_another_schema_is_one_sentence(tmp_path: Path) -> None:
    renamed = [{("Kernel" if k == "CUDA_Code" else k): v for k, v in _row(0).items()}] * 50
    path = _write(tmp_path / "rows.jsonl", renamed)
    with pytest.raises(UsageError, match="do not have the archive's columns"):
        list(SakanaDataLoader(path).rows())


def test_an_empty_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.jsonl"):
        list(SakanaDataLoader(tmp_path).rows())


@pytest.mark.parametrize(
    ("op_name", "level", "tier"),
    [
        ("19_ReLU", 1, 0),
        ("47_Sum_reduction_over_a_dimension", 1, 1),
        ("1_Square_matrix_multiplication_", 1, 2),
        ("23_Softmax", 1, 2),
        ("1_Conv2D_ReLU_BiasAdd", 2, 3),
        ("1_MLP", 3, 3),
    ],
)
def test_the_operation_decides_the_tier_above_the_archives_level(
    op_name: str, level: int, tier: int
) -> None:
    row = parse_row(_row(0, Op_Name=op_name, Level_ID=level))
    assert not isinstance(row, str)
    assert row.tier == tier


def _receipt(job: Job, status: Status) -> KernelReceipt:
    passed = status is Status.CORRECT
    test = TestResult(
        case="main",
        seed=0,
        shapes=((4,),),
        dtype="float32",
        max_abs_error=0.0,
        max_rel_error=0.0,
        tolerance=1e-6,
        passed=passed,
    )
    evidence = Finding(
        rule="reads_back", severity="high", line=None, message="stale answer", basis="run"
    )
    verdict = Verdict(
        status=status,
        reason="made by hand",
        task=job.task.name,
        candidate_sha256=job.key[1],
        backend="emulator",
        tests=(test,),
        cheats=() if passed else (evidence,),
    )
    return KernelReceipt(
        task=job.task.name,
        level=job.level,
        task_digest=task_digest(job.task),
        kernel_sha256=job.key[1],
        verdict=verdict,
        verdict_digest="d",
    )


def test_only_kernels_that_the_judge_found_correct_are_examples(tmp_path: Path) -> None:
    loader = SakanaDataLoader(_write(tmp_path / "rows.jsonl", _mixed()))
    jobs = list(loader.jobs())
    assert len(jobs) == 8
    assert jobs[0].task.source == "sakana"
    assert jobs[0].task.licence == "CC-BY-4.0"
    receipts: dict[Key, KernelReceipt] = {j.key: _receipt(j, Status.CORRECT) for j in jobs[:3]}
    receipts[jobs[3].key] = _receipt(jobs[3], Status.CHEATING)
    examples = archive_examples_of(jobs, receipts)
    assert [e.code for e in examples] == [j.code for j in jobs[:3]]
    judged = [(row, receipt) for row, _, receipt in loader.judged(receipts) if receipt]
    (cheat,) = [pair for pair in judged if not pair[1].verdict.correct]
    assert cheat[0].kernel_name == "kernel_3"
    assert cheat[1].verdict.cheats


def test_synthetic_examples_stand_in_only_on_the_users_word(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        build_archive_sft(tmp_path, tmp_path / "set", limit=5)
    found = build_archive_sft(tmp_path, tmp_path / "set", allow_synthetic=True, limit=5)
    assert found.source.startswith("synthesis")
    assert {e.task.source for e in ExampleStore(Path(found.file))} == {"synthesis"}


def test_a_module_that_does_not_run_is_counted(tmp_path: Path) -> None:
    rows = [_row(0), _row(1, Op_Name="20_Broken", PyTorch_Code_Module="import torch\n1/0\n")]
    loader = SakanaDataLoader(_write(tmp_path / "rows.jsonl", rows))
    assert len(list(loader.jobs())) == 1
    assert loader.report.skipped == {"module does not run": 1}


def test_the_whole_archives_number_of_rows_streams_in_little_memory(tmp_path: Path) -> None:
    line = json.dumps(_row(0, CUDA_Code="// " + "x" * 1000)) + "\n"
    path = tmp_path / "archive.jsonl"
    path.write_text(line * 30_615)
    tracemalloc.start()
    assert sum(1 for _ in SakanaDataLoader(path).rows()) == 30_615
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_a_row_without_its_level_gets_one_from_its_module() -> None:
    chain = MODULE.replace("torch.relu(x)", "torch.relu(torch.tanh(torch.exp(x)))")
    levels = []
    for module in (MODULE, chain):
        row = parse_row(_row(0, Level_ID=None, PyTorch_Code_Module=module))
        assert not isinstance(row, str)
        levels.append(row.level)
    assert levels == [1, 2]

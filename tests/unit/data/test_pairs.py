"""Pairs of the whole catalogue: judged, no device code twice, and kept in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_framework.data.example_store import BuildReport, ExampleStore
from coding_framework.data.examples import in_turn
from coding_framework.data.pairs import kernel_jobs, pair_jobs, sft_pairs
from coding_framework.data.statistics import task_statistics
from coding_framework.data.synthesis.catalog import (
    all_functions,
    build_task,
    catalog,
    family_names,
    family_of,
    workload_catalog,
)
from coding_framework.data.synthesis.receipts import Job, KernelReceipt, Key, task_digest
from coding_framework.errors import UsageError
from coding_framework.types import (
    BenchmarkResult,
    CompileSummary,
    Role,
    Split,
    Status,
    TestResult,
    Verdict,
)

pytestmark = pytest.mark.unit

FUNCTIONS = [
    *in_turn(workload_catalog(), lambda f: family_of(f).name, 60),
    *in_turn(catalog(), lambda f: family_of(f).name, 6),
]
TASKS = [build_task(function) for function in FUNCTIONS]


def _receipt(job: Job, status: Status, ms: float, ptx: str) -> KernelReceipt:
    correct = status is Status.CORRECT
    test = TestResult(
        case="main", seed=0, shapes=((1,),), dtype="float32", max_abs_error=0.0,
        max_rel_error=0.0, tolerance=1.0, passed=correct,
    )  # fmt: skip
    verdict = Verdict(
        status=status,
        reason="judged",
        task=job.task.name,
        candidate_sha256=job.key[1],
        backend="emulator",
        compile=CompileSummary(ptx_sha256=ptx),
        tests=(test,),
        timing=BenchmarkResult(kernel_ms=ms, kernel_ms_ci95=(ms, ms), modelled=True)
        if correct
        else None,
    )
    return KernelReceipt(
        task=job.task.name, level=job.level, task_digest=job.key[0], kernel_sha256=job.key[1],
        verdict=verdict, verdict_digest="d" * 64, code=job.code, why=job.why,
    )  # fmt: skip


def _judged() -> Iterator[tuple[Key, KernelReceipt]]:
    """All kernels right, optimised ones faster, faults wrong, each with device code of its own."""
    for job in (*kernel_jobs(TASKS), *pair_jobs(TASKS)):
        broken = job.level.startswith("broken")
        status = Status.WRONG_OUTPUT if broken else Status.CORRECT
        yield job.key, _receipt(job, status, 2.0 if job.level == "naive" else 1.0, job.key[1])


@pytest.fixture(scope="module")
def receipts() -> dict[Key, KernelReceipt]:
    return dict(_judged())


def test_a_balanced_draw_takes_every_family_in_turn() -> None:
    drawn = in_turn(all_functions(), lambda f: family_of(f).name, 118)
    assert {family_of(f).name for f in drawn} == set(family_names())


def test_every_kernel_every_improvement_and_several_repairs_become_pairs(
    receipts: dict[Key, KernelReceipt],
) -> None:
    report = BuildReport()
    examples = list(sft_pairs(TASKS, receipts, report))
    assert sum(report.kept.values()) == len(examples)
    assert {e.task.split for e in examples} == {Split.TRAIN}
    assert {e.task.tier for e in examples} == {0, 1, 2, 3}
    assert {e.kind for e in examples} == {"generate", "optimize", "repair"}
    assert len({e.id for e in examples}) == len(examples)
    for example in examples:
        assert example.receipt
        if example.kind != "generate":
            assert example.role is Role.OPTIMIZER
            assert example.why
            assert example.previous_verdict is not None
            assert example.previous_verdict.correct == (example.kind == "optimize")
    assert [e.id for e in sft_pairs(TASKS, receipts, BuildReport())] == [e.id for e in examples]


def test_equal_device_code_is_taken_once(receipts: dict[Key, KernelReceipt]) -> None:
    same = {
        key: r.model_copy(
            update={
                "verdict": r.verdict.model_copy(
                    update={"compile": CompileSummary(ptx_sha256="same")}
                )
            }
        )
        for key, r in receipts.items()
    }
    report = BuildReport()
    examples = list(sft_pairs(TASKS, same, report))
    assert sorted(e.kind for e in examples) == ["generate", "optimize", "repair"]
    assert report.left_out["device code seen before"] > 100


def test_what_is_not_judged_or_not_right_is_left_out_and_counted(
    receipts: dict[Key, KernelReceipt],
) -> None:
    report = BuildReport()
    assert list(sft_pairs(TASKS, {}, report)) == []
    assert report.left_out["not judged"] > 20
    wrong = {
        key: r.model_copy(
            update={
                "verdict": r.verdict.model_copy(update={"status": Status.TIMEOUT, "timing": None})
            }
        )
        for key, r in receipts.items()
    }
    assert list(sft_pairs(TASKS, wrong, report)) == []
    assert report.left_out["not correct"] > 100


def test_a_store_gives_the_examples_back_by_number(
    tmp_path: Path, receipts: dict[Key, KernelReceipt]
) -> None:
    examples = list(sft_pairs(TASKS[:20], receipts, BuildReport()))
    store = ExampleStore.write(tmp_path / "set" / "examples.jsonl", examples)
    assert len(store) == len(examples)
    assert list(store) == examples
    assert [entry.id for entry in store.entries] == [e.id for e in examples]
    with pytest.raises(IndexError):
        store[len(examples)]
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["examples.jsonl"]


def test_a_file_that_was_cut_off_is_refused(
    tmp_path: Path, receipts: dict[Key, KernelReceipt]
) -> None:
    path = tmp_path / "examples.jsonl"
    ExampleStore.write(path, sft_pairs(TASKS[:20], receipts, BuildReport()))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UsageError, match="build-sft"):
        ExampleStore(path)


def test_statistics_count_tasks_families_and_judged_kernels(
    receipts: dict[Key, KernelReceipt],
) -> None:
    found = task_statistics(
        [{**task.model_dump(mode="json"), "digest": task_digest(task)} for task in TASKS],
        receipts,
    )
    assert found.tasks == len(TASKS)
    assert all(f.judged == f.correct for f in found.families)
    assert set(found.by_tier) == {0, 1, 2, 3}
    assert f"{len(TASKS)} tasks of" in found.table()

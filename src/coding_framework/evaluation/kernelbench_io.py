"""KernelBench's files of a run, written from ours so that its own analysis reads them unchanged.

    RUN/level_1_problem_19_sample_0_kernel.py     the answers
    RUN/eval_results.json                         what came of them, times in milliseconds
    RUN/results/timing/HARDWARE/baseline_time_torch.json, and one for each other baseline

A modelled time is never written as a runtime: it stands in the metadata, and the runtime is -1.
Their file names have room for one level, so a run of two levels is two folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.types import BaselineName, BenchmarkResult, CUDAConversationState, Verdict

BASELINES: Mapping[BaselineName, str] = {
    "eager": "baseline_time_torch",
    "eager_tf32": "baseline_time_torch_tf32",
    "compiled": "baseline_time_torch_compile_inductor_default",
}
"""The names that KernelBench and KernelBench-Verified have for PyTorch's times."""


def write_kernelbench_run(
    folder: Path,
    suites: Sequence[EvalSuite],
    found: Sequence[tuple[CUDAConversationState, SampleRecord]],
    hardware: str,
) -> None:
    """Raises UsageError where the suites are not of one KernelBench level."""
    level = level_of(suites)
    entries = {e.task.name: e for suite in suites for e in suite.tasks}
    results: dict[str, list[dict[str, Any]]] = {}
    times: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in BASELINES.values()}
    for state, record in sorted(found, key=lambda pair: _place(entries, pair[1])):
        entry = entries[record.task]
        best = None if record.best_turn is None else state.turns[record.best_turn]
        if best is None or best.verdict is None:
            continue  # a fault of ours is not a failure of the kernel's
        name = f"level_{level}_problem_{entry.number}_sample_{record.sample}_kernel.py"
        write_atomic(folder / name, best.code or "")
        results.setdefault(str(entry.number), []).append(
            _entry(record.sample, best.verdict, hardware)
        )
        for kind, mean in _baselines(best.verdict.timing):
            times[kind].setdefault(f"{record.task}.py", {"mean": mean, "hardware": hardware})
    write_json_atomic(folder / "eval_results.json", results)
    for kind, means in times.items():
        if means:
            path = folder / "results" / "timing" / hardware / f"{kind}.json"
            write_json_atomic(path, {f"level{level}": means})


def level_of(suites: Sequence[EvalSuite]) -> int:
    """KernelBench's level of all tasks. Raises UsageError where they have not one."""
    entries = [entry for suite in suites for entry in suite.tasks]
    levels = {entry.level if entry.number is not None else None for entry in entries}
    level = levels.pop()
    if levels or level is None:
        raise UsageError("--kernelbench-out needs suites of one level, e.g. --suite kernelbench:1")
    return level


def _place(entries: Mapping[str, SuiteTask], record: SampleRecord) -> tuple[int, int]:
    return (entries[record.task].number or 0, record.sample)


def _entry(sample: int, verdict: Verdict, hardware: str) -> dict[str, Any]:
    """As their evaluation writes it; what is ours stands under one key of the metadata."""
    timing = verdict.timing
    measured = timing is not None and not timing.modelled
    ours: dict[str, Any] = {
        "status": verdict.status.value,
        "reason": verdict.reason,
        "protocol": verdict.receipt.protocol,
        "candidate_sha256": verdict.candidate_sha256,
    }
    if timing is not None and timing.modelled:
        ours["modelled_ms"] = timing.kernel_ms
    return {
        "sample_id": sample,
        "compiled": verdict.compiled,
        "correctness": verdict.correct,
        "metadata": {
            "hardware": hardware,
            "device": verdict.receipt.device,
            "coding_framework": ours,
        },
        "runtime": timing.kernel_ms if measured and timing is not None else -1.0,
        "runtime_stats": _stats(timing) if measured and timing is not None else {},
    }


def _stats(timing: BenchmarkResult) -> dict[str, Any]:
    low, high = timing.kernel_ms_ci95
    return {"mean": timing.kernel_ms, "ci95_low": low, "ci95_high": high}


def _baselines(timing: BenchmarkResult | None) -> list[tuple[str, float]]:
    """PyTorch's measured times of a verdict, by their names."""
    if timing is None or timing.modelled:
        return []
    found = ((kind, getattr(timing, f"{name}_ms")) for name, kind in BASELINES.items())
    return [(kind, mean) for kind, mean in found if mean is not None]

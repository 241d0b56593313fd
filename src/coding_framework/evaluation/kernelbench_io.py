"""KernelBench's files of a run, written from ours so that its own analysis reads them unchanged.

    RUN/level_1_problem_19_sample_0_kernel.py     the answers
    RUN/eval_results.json                         what came of them, times in milliseconds
    RUN/pass_at_k_results.json
    RUN/results/timing/HARDWARE/baseline_time_torch.json

A modelled time is never written as a runtime: it stands in the metadata, and the runtime is -1.
Their file names have room for one level, so a run of two levels is two folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coding_framework.errors import UsageError
from coding_framework.evaluation.samples import SampleRecord
from coding_framework.evaluation.suites import EvalSuite, SuiteTask
from coding_framework.paths import write_atomic, write_json_atomic
from coding_framework.types import BenchmarkResult, CUDAConversationState, Verdict

EAGER, COMPILED = "baseline_time_torch", "baseline_time_torch_compile_inductor_default"
"""Their names of the two baselines."""


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
    times: dict[str, dict[str, dict[str, Any]]] = {EAGER: {}, COMPILED: {}}
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
    ks = [k for k in (1, 5, 10) if k <= max(map(len, results.values()), default=0)]
    write_json_atomic(folder / "pass_at_k_results.json", _pass_at_k_results(results, ks))
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
    found = ((EAGER, timing.eager_ms), (COMPILED, timing.compiled_ms))
    return [(kind, mean) for kind, mean in found if mean is not None]


def _pass_at_k_results(
    results: Mapping[str, Sequence[Mapping[str, Any]]], ks: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Their pass_at_k_results.json: averages, metadata and problems. pass@k of a problem with fewer
    samples is stored as pass@n, and averages divide by all problems, as eval_from_generations.py
    does at commit 423217d."""
    problems: dict[str, dict[str, Any]] = {}
    for number, entries in results.items():
        n = len(entries)
        c = sum(1 for entry in entries if entry["correctness"] and entry["compiled"])
        row = {f"pass@{min(k, n)}": _pass_at_k(n, c, min(k, n)) for k in ks}
        problems[number] = {"total_samples": n, "correct_samples": c, **row}
    rows = list(problems.values())
    having = {k: [row[f"pass@{k}"] for row in rows if f"pass@{k}" in row] for k in ks}
    return {
        "averages": {f"avg_pass@{k}": float(sum(having[k]) / len(rows)) for k in ks if rows},
        "metadata": {
            "total_problems": len(rows),
            "problems_with_samples": sum(row["total_samples"] > 0 for row in rows),
            "total_evaluated_samples": sum(row["total_samples"] for row in rows),
            "total_correct_samples": sum(row["correct_samples"] for row in rows),
            **{f"pass@{k}_count": len(having[k]) for k in ks},
        },
        "problems": problems,
    }


def _pass_at_k(n: int, c: int, k: int) -> float:
    """By the running product that they use: another order of the same operations may differ in the
    last bit."""
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))

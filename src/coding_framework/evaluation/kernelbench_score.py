"""KernelBench's own numbers from a run's eval_results.json, equal to its scripts' to the last bit.

Their way has quirks, which are kept, because these numbers are for the comparison with published
ones (scripts/benchmark_eval_analysis.py and eval_from_generations.py at commit 423217d):

- of several samples only the one with `sample_id` 0 counts, but for pass@k;
- a problem without an entry counts as failed; entries of unknown problems count as well;
- rates are over the dataset, fast_p over the problems that have a baseline, strictly above p;
- the geometric mean takes in correct kernels without a time, whose runtime is -1;
- pass@k of a problem with fewer samples is stored as pass@n, and averages divide by all problems.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coding_framework.errors import UsageError
from coding_framework.types import Record

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
MAX_FILE_BYTES = 1 << 30

Entry = Mapping[str, Any]


class KernelBenchScore(Record):
    """What their analysis prints of a run. Field names are theirs."""

    total_count: int
    total_eval: int
    compiled_count: int
    correct_count: int
    compilation_rate: float
    correctness_rate: float
    geo_mean_speedup: float
    """NaN, infinite or complex nonsense where runtimes of -1 make it so: see `warnings`."""
    fast_p: Mapping[str, float]
    warnings: tuple[str, ...] = ()
    """Ours: where their way gives a number that means nothing."""


def read_results(path: Path) -> dict[str, list[Entry]]:
    """Their eval_results.json: problem number -> entries of its samples. Raises UsageError."""
    found = _read_object(path)
    for number, entries in found.items():
        if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
            raise UsageError(
                f"{path}: the entries of problem {number} are not KernelBench's: each needs "
                "sample_id, compiled, correctness and runtime"
            )
    return found


def read_baseline(path: Path, level: int) -> dict[str, float]:
    """Mean times (ms) of a baseline file, problem name -> mean. Raises UsageError."""
    found = _read_object(path).get(f"level{level}")
    if not isinstance(found, dict):
        raise UsageError(f"{path} has no times of level {level}: choose another baseline file")
    try:
        return {name: entry["mean"] for name, entry in found.items()}
    except (KeyError, TypeError) as e:
        raise UsageError(f"{path}: level {level} holds an entry without a mean time") from e


def kernelbench_score(
    results: Mapping[str, Sequence[Entry]], baseline: Mapping[str, float], names: Mapping[int, str]
) -> KernelBenchScore:
    """names: problem number -> file name with .py, of every problem of the level. Raises UsageError
    where a problem has two entries of sample 0, as their script stops there."""
    missing: Entry = {"compiled": False, "correctness": False, "runtime": -1.0}
    first = {number: _first_sample(number, entries) for number, entries in results.items()}
    counted: dict[str, Entry] = {number: e for number, e in first.items() if e is not None}
    for problem in names:
        counted.setdefault(str(problem), missing)
    compiled = sum(entry["compiled"] is True for entry in counted.values())
    correct = sum(entry["correctness"] is True for entry in counted.values())
    aligned = [
        (counted[str(problem)], baseline[names[problem]])
        for problem in sorted(names)
        if names[problem] in baseline
    ]
    solved = [(mean, entry["runtime"]) for entry, mean in aligned if entry["correctness"]]
    with np.errstate(all="ignore"):
        speedups = np.array([m for m, _ in solved]) / np.array([r for _, r in solved])
        product = np.prod(speedups)
        mean = float(product ** (1 / np.int64(len(solved)))) if solved else 0.0
    return KernelBenchScore(
        total_count=len(names),
        total_eval=len(results),
        compiled_count=compiled,
        correct_count=correct,
        compilation_rate=compiled / len(names) if names else 0.0,
        correctness_rate=correct / len(names) if names else 0.0,
        geo_mean_speedup=mean,
        fast_p={
            str(p): float(np.sum(speedups > p) / len(aligned)) if aligned else 0.0
            for p in THRESHOLDS
        },
        warnings=_warnings([runtime for _, runtime in solved], mean),
    )


def kernelbench_pass_at_k(
    results: Mapping[str, Sequence[Entry]], ks: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Their pass_at_k_results.json: averages, metadata and problems."""
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


def _read_object(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than 1 GiB: this is no file of KernelBench's")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise UsageError(f"{path} is not JSON, or was cut off: {e}") from e
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not a JSON object of problems")
    return found


def _is_entry(entry: object) -> bool:
    needed = {"sample_id", "compiled", "correctness", "runtime"}
    return isinstance(entry, dict) and needed <= entry.keys()


def _first_sample(number: str, entries: Sequence[Entry]) -> Entry | None:
    found = [entry for entry in entries if entry["sample_id"] == 0]
    if len(found) > 1:
        raise UsageError(f"problem {number} has {len(found)} entries of sample 0: keep one")
    return found[0] if found else None


def _warnings(runtimes: Sequence[float], mean: float) -> tuple[str, ...]:
    untimed = sum(not runtime > 0 for runtime in runtimes)
    found = []
    if untimed:
        found.append(f"{untimed} correct kernels have no time, and enter the geometric mean as -1")
    if not math.isfinite(mean) or mean < 0:
        found.append(f"the geometric mean is {mean}: it means nothing")
    return tuple(found)

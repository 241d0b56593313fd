"""KernelBench's numbers: equal to what its own scripts gave, and a sentence for broken files.

The goldens are inputs drawn at random and the numbers that KernelBench's
scripts (commit 423217d) gave for them; none of its code is here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coding_framework.errors import UsageError
from coding_framework.evaluation.kernelbench_score import (
    kernelbench_pass_at_k,
    kernelbench_score,
    read_baseline,
    read_results,
)

GOLDENS = json.loads((Path(__file__).parent / "goldens" / "kernelbench_scores.json").read_text())


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit; NaN is equal to NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other) or (one != one and other != other)


@pytest.mark.parametrize("golden", GOLDENS, ids=range(len(GOLDENS)))
def test_every_number_is_that_of_their_scripts(golden: dict[str, Any]) -> None:
    means = {name: entry["mean"] for name, entry in golden["baseline"]["level1"].items()}
    names = {int(number): name for number, name in golden["names"].items()}
    score = kernelbench_score(golden["results"], means, names).model_dump()
    assert same({name: score[name] for name in golden["score"]}, golden["score"])
    assert same(kernelbench_pass_at_k(golden["results"], (1, 3, 5)), golden["pass_at_k"])


def test_a_correct_kernel_without_a_time_is_named() -> None:
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "runtime": -1.0}
    score = kernelbench_score({"1": [entry]}, {"1_A.py": 2.0}, {1: "1_A.py"})
    assert score.geo_mean_speedup == -2.0
    assert "1 correct kernels have no time" in score.warnings[0]


@pytest.mark.parametrize("text", ["", '{"1": [{"sample_id": 0', "[]", '{"1": 3}', '{"1": [{}]}'])
def test_a_broken_results_file_is_wrong_use(tmp_path: Path, text: str) -> None:
    path = tmp_path / "eval_results.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="eval_results"):
        read_results(path)


def test_two_entries_of_one_sample_are_refused() -> None:
    entry = {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 1.0}
    with pytest.raises(UsageError, match="2 entries of sample 0"):
        kernelbench_score({"1": [entry, entry]}, {"1_A.py": 2.0}, {1: "1_A.py"})


def test_a_baseline_without_the_level_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"level2": {}}')
    with pytest.raises(UsageError, match="no times of level 1"):
        read_baseline(path, 1)

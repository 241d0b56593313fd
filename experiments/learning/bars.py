"""The bars that were set for the learning, each with the file that decides it, in one table.

    bars.py

writes `benchmarks/results/learning.h200.json`. Where several runs measured a bar, the one of the
policy that docs/RESULTS.md tells of counts, or the best.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from bench_io import RESULTS, bar

from coding_framework.paths import write_json_atomic


@dataclass(frozen=True, slots=True)
class Asked:
    """A bar, and where its value stands."""

    what: str
    target: float
    file: str
    place: Sequence[str | int]
    """Of the value in the file; the last but one may be a bar's words."""
    sense: Literal["at least", "at most", "above"] = "at least"


def _of(words: str) -> tuple[str, str, str]:
    return ("bars", words, "value")


_TESTED, _RL = "learning_sft_tested.h200", "learning_rl_4.h200"
_CONTROL, _STEP = "learning_rl_4_control.h200", "learning_rl_5.h200"
_SEARCH, _ONE_GPU = "learning_search.h200", "learning_sft.h200"
_GREEDY, _FEEDBACK = "kernelbench_greedy.h200", "learning_feedback_3.h200"
_LESS_CONTROL = ("comparisons", "rl-0 - control-0", "fast_1.05")
_LESS_SFT = ("comparisons", "rl-0 - sft", "fast_1.05")
BARS = (
    Asked("SFT, held-out modules, correct", 0.65, _TESTED, ("test", "pass@1")),
    Asked("SFT, held-out modules, fast_1", 0.35, _TESTED, ("test", "fast_1")),
    Asked("SFT, KernelBench level 1, greedy, correct", 0.45, _GREEDY, _of("level 1, correct")),
    Asked("SFT, KernelBench level 1, greedy, fast_1", 0.25, _GREEDY, _of("level 1, fast_1")),
    Asked("SFT, KernelBench level 2, greedy, correct", 0.30, _GREEDY, _of("level 2, correct")),
    Asked("SFT, KernelBench level 2, greedy, fast_1", 0.20, _GREEDY, _of("level 2, fast_1")),
    Asked("SFT, tokens a second on one GPU", 20000, _ONE_GPU, _of("SFT, tokens a second")),
    Asked("RL less RFT, fast_1.05 (one seed)", 0.05, _CONTROL, (*_LESS_CONTROL, "estimate")),
    Asked("its lower 95% end", 0.0, _CONTROL, (*_LESS_CONTROL, "ci95", 0), "above"),
    Asked(
        "RL less RFT, right in one of two samples", -0.02, _CONTROL,
        _of("rl-0: pass@k less the control's"),
    ),
    Asked("RL less SFT, fast_1.05", 0.0, _RL, (*_LESS_SFT, "estimate"), "above"),
    Asked(
        "feedback less resampling at equal tokens", 0.05, _FEEDBACK,
        _of("feedback less resampling at equal tokens, correct"),
    ),
    Asked(
        "repeats among later turns", 0.10, _FEEDBACK, _of("repeats among later turns"), "at most",
    ),
    Asked("search, KernelBench level 1, correct", 0.65, _SEARCH, ("level 1", "correct")),
    Asked("search, KernelBench level 1, fast_1", 0.40, _SEARCH, ("level 1", "fast_1")),
    Asked("search, KernelBench level 2, fast_1", 0.35, _SEARCH, ("level 2", "fast_1")),
    Asked(
        "RL step in step, s (526,000 tokens; on H100s with 229,000 33)", 20,
        "learning_rl_passes.h200",
        _of(
            "RL step of 256 conversations, measured times, two GPUs of which one judges, s (median "
            "of steps 3 to 6, in step)"
        ), "at most",
    ),
    Asked(
        "RL step one step off-policy, s", 14, _STEP,
        _of("RL step one step off-policy, s (median of steps 3 to 32)"), "at most",
    ),
    Asked(
        "verdicts waited for, share of that step", 0.10, _STEP,
        _of("verdicts waited for, share of that step (p95, median of steps)"), "at most",
    ),
)  # fmt: skip


def value_of(asked: Asked, results: Path = RESULTS) -> float:
    """Raises KeyError where the file no longer has it."""
    found: Any = json.loads((results / f"{asked.file}.json").read_text())
    for step in asked.place:
        if isinstance(found, list) and isinstance(step, str):
            found = next((row for row in found if row["bar"] == step), None)
            if found is None:
                raise KeyError(f"{asked.file}.json has no bar {step!r}")
        else:
            found = found[step]
    return float(found)


def told(results: Path = RESULTS) -> dict[str, Any]:
    rows = []
    for asked in BARS:
        value = value_of(asked, results)
        holds = {
            "at least": value >= asked.target, "at most": value <= asked.target,
            "above": value > asked.target,
        }[asked.sense]  # fmt: skip
        row = bar(asked.what, asked.target, value, holds)
        rows.append({**row, "sense": asked.sense, "from": f"{asked.file}.json"})
    beside = json.loads((results / f"{_TESTED}.json").read_text())["test"]
    return {
        "benchmark": "learning",
        "command": "python experiments/learning/bars.py",
        "note": "Each bar's machine, date and versions are in the file that it is from.",
        "bars": rows,
        "beside": {
            "best kernels at least 2x eager": beside["best_at_least_2x"],
            "geometric mean of the best kernels' speedups": beside["best_geometric_mean"],
            "from": f"{_TESTED}.json",
        },
    }


if __name__ == "__main__":
    write_json_atomic(RESULTS / "learning.h200.json", told())

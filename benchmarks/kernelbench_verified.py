"""Recorded answers to KernelBench under the rules of KernelBench-Verified, on one GPU.

    uv run python benchmarks/kernelbench_verified.py --problems FILE [--answers FILE] [--minutes 4]
        [--baselines tf32] [--workers N] [--limit N] [--work DIR]

FILE of problems: rows {"level", "problem_id", "name", "code"}. Answers: rows {"task", "code"}, by
default the fastest kernels of the search of 2026-11-28, 48 candidates a problem
(results/learning_search.h200.rows.jsonl). Each answer gets our verdict and that of the rules; the
same command goes on where it was stopped. Writes benchmarks/results/kernelbench_verified.GPU.json:
by level how many are correct by both and by each, fast_1 and geometric mean over each baseline,
memory, and each answer that one of the two refuses, with the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench_io import RESULTS, ROOT, bar
from gpu_bench import this_gpu, write_report

from coding_framework.run.eval_options import EvalOptions
from coding_framework.run.evaluation import plan_evaluation, run_evaluation
from coding_framework.store.lines import read_lines
from coding_framework.wiring import JudgeSettings

RECORDED = RESULTS / "learning_search.h200.rows.jsonl"
AGREE = 0.9
"""Of the answers that the rules call correct, by our protocol too."""


def write_inputs(problems: Path, answers: Path, work: Path) -> list[str]:
    """The suites, a file of problems each, and work/answers.jsonl."""
    work.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in read_lines(problems)]
    suites = []
    for level in sorted({row["level"] for row in rows}):
        suites.append(str(work / f"level{level}.jsonl"))
        own = (json.dumps(row) for row in rows if row["level"] == level)
        Path(suites[-1]).write_text("\n".join(own) + "\n")
    given = (json.loads(line) for line in read_lines(answers))
    kept = (json.dumps({"task": r["task"], "code": r["code"]}) for r in given if r["code"])
    (work / "answers.jsonl").write_text("\n".join(kept) + "\n")
    return suites


def of_level(block: Any) -> dict[str, Any]:
    """What the report tells of the answers to one level."""
    ruled = block.by_rules
    return {
        "answers": block.samples,
        "masked": block.masked,
        "correct by both": block.pass_at["pass@1"].value,
        "statuses": dict(block.statuses),
        **({} if ruled is None else ruled.model_dump(mode="json")),
        "speeds": [
            {
                **s.model_dump(mode="json", include={"baseline", "device", "timed", "strongest"}),
                "fast": {name: e.value for name, e in s.fast.items()},
                "over": {name: e.value for name, e in s.over.items()},
                "memory": s.memory.value if s.memory is not None else None,
            }
            for s in block.speeds
        ],
    }


def main() -> int:
    """Judge, and write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--answers", type=Path, default=RECORDED)
    parser.add_argument("--minutes", type=float, default=4.0, help="then no further answer begins")
    parser.add_argument("--baselines", default="tf32", choices=("tf32", "all", "max-autotune"))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--limit", type=int, help="problems of each level")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "kernelbench_verified")
    args = parser.parse_args()
    this_gpu()
    suites, started = write_inputs(args.problems, args.answers, args.work), time.monotonic()
    options = EvalOptions(
        answers=args.work / "answers.jsonl", output_dir=args.work / "eval", limit=args.limit,
        rules="kernelbench-verified", minutes=args.minutes, concurrency=args.workers or 48,
    )  # fmt: skip
    plan = plan_evaluation(None, suites, options)
    judging = JudgeSettings(backend="cuda", baselines=args.baselines, workers=args.workers)
    outcome = run_evaluation(None, plan, options, judging)
    assert outcome is not None
    levels = {Path(s.suite).stem: of_level(s.overall) for s in outcome.suites}
    ruled = outcome.overall.overall.by_rules
    refused = len(ruled.refused_by_us) if ruled is not None else 0
    agree = 1 - refused / max(1, ruled.theirs.count) if ruled is not None else 0.0
    bars = [bar("share of what the rules accept that we do", AGREE, agree, agree >= AGREE)]
    figures = {"rules": outcome.eval.model_dump(mode="json")["rules"], "levels": levels}
    seconds = round(time.monotonic() - started, 1)
    more = {"complete": outcome.complete, "faults": dict(outcome.faults), "seconds": seconds}
    return 0 if write_report("kernelbench_verified", bars, figures | more) else 1


if __name__ == "__main__":
    sys.exit(main())

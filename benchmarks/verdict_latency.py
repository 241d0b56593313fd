"""How long a verdict takes where the compilation, or the verdict itself, is in the cache.

    uv run python benchmarks/verdict_latency.py [--tasks relu,softmax,...] [--repeats 5]

Tasks have a first shape set of 1M elements (1024 x 1024); the other shape sets are the usual ones.
Compile-cached: a judge that has judged the task before (its references and baseline are known) gets
the same kernel again: plan, replays, comparisons and the second device, all anew. Verdict-cached:
the same request to a pool whose verdict cache has it. Wall time, median of `--repeats`; an idle
machine is wanted. Also told: the first verdict of a fresh process, with and without the
compilation in the cache. Prints a table, writes benchmarks/results/verdict_latency.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_io import at_most, finish, head, this_machine

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.many.pool import JudgePool
from coding_framework.data.synthesis import catalog
from coding_framework.data.synthesis.program import parse_program
from coding_framework.types import Candidate, Status, Task, TensorSpec, TestCase

SIDE = 1024
COMPILE_CACHED_S, VERDICT_CACHED_S = 1.0, 0.2
TASKS = "relu,add,gelu,softmax,layernorm,rowsum,transpose"


def million(name: str) -> Task:
    """The synthesised task of that name with a first shape set of 1M elements a matrix."""
    program = parse_program(name)
    if program is None:
        sys.exit(f"{name!r} is no synthesised task: see `cuda-rl tasks list`")
    task = catalog.build_task(program)
    first, *others = task.cases
    rows, columns = first.inputs[0].shape
    scale = {rows: SIDE, columns: SIDE}

    def grown(spec: TensorSpec) -> TensorSpec:
        return spec.model_copy(update={"shape": tuple(scale.get(n, n) for n in spec.shape)})

    larger = TestCase(
        name=first.name,
        inputs=tuple(grown(spec) for spec in first.inputs),
        init_args=first.init_args,
        reduction_length=max(first.reduction_length, 1) if first.reduction_length == 1 else SIDE,
        shown=first.shown,
    )
    return task.model_copy(update={"cases": (larger, *others)})


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(task: Task, repeats: int, cache: Path) -> dict[str, Any]:
    """Seconds of each path for the task's naive kernel, judged in one process as in a worker."""
    code = task.naive_kernel or ""
    judge = Judge(JudgeConfig(seed=0))
    fresh = timed(lambda: judge.judge(task, Candidate(code=code)))
    verdict = judge.judge(task, Candidate(code=code))
    if verdict.status is not Status.CORRECT:
        sys.exit(f"the naive kernel of {task.name} is not correct: {verdict.reason}")
    compile_cached = [
        timed(lambda: judge.judge(task, Candidate(code=code))) for _ in range(repeats)
    ]
    with JudgePool(JudgeConfig(seed=0), workers=1, cache_folder=cache) as pool:
        pool_first = timed(lambda: pool.judge_blocking(task, code))
        again = [timed(lambda: pool.judge_blocking(task, code)) for _ in range(repeats)]
    with JudgePool(JudgeConfig(seed=0), workers=1, cache_folder=cache) as pool:
        restarted = timed(lambda: pool.judge_blocking(task, code))
    row = {
        "task": task.name,
        "judge_first_s": round(fresh, 3),
        "compile_cached_s": round(statistics.median(compile_cached), 3),
        "pool_first_s": round(pool_first, 3),
        "verdict_cached_s": round(statistics.median(again), 4),
        "verdict_cached_new_process_s": round(restarted, 4),
    }
    print("  ".join(f"{key} {value}" for key, value in row.items()))
    return row


def main() -> int:
    """Measure all tasks; 1 where a bar does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    machine = this_machine()  # its load, before ours
    import torch

    torch.set_num_threads(1)  # as in the pool's workers
    with tempfile.TemporaryDirectory() as cache:
        rows = [measure(million(n), args.repeats, Path(cache)) for n in args.tasks.split(",")]
    slowest = {
        key: max(row[key] for row in rows) for key in ("compile_cached_s", "verdict_cached_s")
    }
    bars = [
        at_most(
            f"{what}-cached verdict of a 1M-element task, slowest task (s)",
            target,
            slowest[f"{what}_cached_s"],
        )
        for what, target in (("compile", COMPILE_CACHED_S), ("verdict", VERDICT_CACHED_S))
    ]
    report = {
        **head("verdict_latency", packages=("torch",), machine=machine),
        "bars": bars,
        "rows": rows,
    }
    return 0 if finish(report) else 1


if __name__ == "__main__":
    sys.exit(main())

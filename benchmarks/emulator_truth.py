"""Right or wrong: what benchmarks/emulator.py counts. Resumable: each batch is kept as it ends.

Kept in the cache folder under the digest of the judge and of the generators, so that a change of
either starts anew.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from coding_framework.cuda.judge import JudgeConfig  # noqa: E402
from coding_framework.cuda.many.pool import JudgePool  # noqa: E402
from coding_framework.cuda.protocol import judge_digest  # noqa: E402
from coding_framework.cuda.toolchain.slots import available_cores  # noqa: E402
from coding_framework.data.synthesis import catalog  # noqa: E402
from coding_framework.monitoring.progress import Progress  # noqa: E402
from coding_framework.paths import cache_dir  # noqa: E402
from coding_framework.store.lines import JsonlSink, read_lines  # noqa: E402
from support.emulator_harness import Gpu, compile_ptx  # noqa: E402
from support.fault_corpus import Seeded, corpus, outcome, source_of  # noqa: E402
from support.random_differential import differences  # noqa: E402
from support.random_kernels import make_kernel  # noqa: E402

BATCH = 50
CHECKS = ("uninitialized_read", "uninitialized_shared_read", "shared_memory_race", "warp_race",
          "barrier_divergence")  # fmt: skip


def generated_kernels(total: int, seed: int) -> dict[str, Any]:
    """`total` random kernels against gcc, checks on: wrong results and false alarms."""

    def batch(number: int) -> dict[str, Any]:
        rng = random.Random(f"{seed}-{number}")
        kernels = [make_kernel(rng, n) for n in range(min(BATCH, total - number * BATCH))]
        with tempfile.TemporaryDirectory(prefix="generated-") as folder:
            lines = differences(kernels, Path(folder), seed + number)
        return {"kernels": len(kernels), "lines": [f"batch {number}: {x}" for x in lines]}

    with ThreadPoolExecutor(available_cores()) as threads:
        name = f"generated-{seed}-{total}"
        results = list(_resumed(name, -(-total // BATCH), batch, "batches", threads))
    lines = [line for result in results for line in result["lines"]]
    return {
        "kernels": sum(result["kernels"] for result in results),
        "seed": seed,
        "wrong": [line for line in lines if "false alarm" not in line],
        "false_alarms": [line for line in lines if "false alarm" in line],
    }


def seeded_faults() -> dict[str, Any]:
    """Each seeded fault found by kind and count; the same kernels without it, and no alarm."""
    kernels, missed, alarms = corpus(), [], []
    gpu = Gpu(compile_ptx(source_of(kernels)), instruction_budget=200_000)
    for kernel in kernels:
        honest, _ = outcome(gpu, kernel, 0)
        if honest:
            alarms.append(f"{kernel.name}: {honest}")
        if not _found(gpu, kernel):
            missed.append(kernel.name)
    return {
        "seeded": len(kernels),
        "families": dict(Counter(kernel.family for kernel in kernels)),
        "missed": missed,
        "false_alarms": alarms,
    }


def _found(gpu: Gpu, kernel: Seeded) -> bool:
    found, count = outcome(gpu, kernel, 1)
    return kernel.found in found and kernel.count in (None, count)


def honest_kernels(count: int) -> dict[str, Any]:
    """Synthesised kernels of all levels, judged on all their shapes with the checks on."""
    programs = catalog.catalog()
    tasks = [catalog.build_task(programs[i * len(programs) // count]) for i in range(count)]
    with JudgePool(JudgeConfig(seed=0)) as pool, ThreadPoolExecutor(pool.capacity) as threads:

        def judge(number: int) -> dict[str, Any]:
            task = tasks[number]
            examples = catalog.kernels_of(task.name)
            example = examples[number % len(examples)]
            verdict = pool.judge_blocking(task, example.code)
            return {
                "name": f"{task.name}/{example.level}",
                "status": verdict.status.value,
                "alarms": [f.message for f in verdict.pitfalls if f.rule in CHECKS],
            }

        results = list(_resumed(f"honest-{count}", count, judge, "kernels", threads))
    return {
        "kernels": len(results),
        "correct": sum(r["status"] == "correct" for r in results),
        "not_correct": [r for r in results if r["status"] != "correct"],
        "false_alarms": [r for r in results if r["alarms"]],
    }


def _resumed(
    name: str,
    count: int,
    work: Callable[[int], dict[str, Any]],
    unit: str,
    threads: ThreadPoolExecutor,
) -> Iterator[dict[str, Any]]:
    """Results of work(0) ... work(count - 1), those of an earlier run taken from its file."""
    key = hashlib.sha256(judge_digest().encode())
    for file in sorted((*(ROOT / "tests" / "support").glob("*.py"), Path(__file__))):
        key.update(file.read_bytes())
    path = cache_dir() / "benchmarks" / f"emulator-{name}-{key.hexdigest()[:16]}.jsonl"
    done: dict[int, dict[str, Any]] = {}
    for line in read_lines(path):
        entry = json.loads(line)
        done[entry.pop("number")] = entry
    left = [number for number in range(count) if number not in done]
    with (
        JsonlSink(path) as sink,
        Progress(name, count, unit, done=count - len(left)) as progress,
    ):
        for number, result in zip(left, threads.map(work, left), strict=True):
            sink.write({"number": number, **result})
            done[number] = result
            progress.advance()
    return (done[number] for number in range(count))

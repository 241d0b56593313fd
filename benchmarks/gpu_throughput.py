"""Verdicts an hour on a GPU, with the full protocol, and how KernelBench's way compares.

    uv run python benchmarks/gpu_throughput.py --part ours [--kernels 4000] [--workers 12]
    uv run python benchmarks/gpu_throughput.py --part kernelbench [--kernels 32]
    uv run python benchmarks/gpu_throughput.py --part report

ours: `cuda-rl judge-many` on different synthesised kernels (all those of tasks drawn at random, in
a random order but for a task's naive kernel, which comes before those that are put beside it),
nothing of them compiled before, without PyTorch's times beside them (those are kept from run to
run). After so many minutes it is stopped. Naive kernels, the slowest ones, are most of a stopped
run's, so the rate of a run to its end is the true one. It counts from the first verdict on
(processes and contexts take some seconds to come up, once) and, apart, from the start.
kernelbench: the same kernels by the way of its evaluation script: torch's own headers, compiled by
`torch.utils.cpp_extension.load` in parallel on all cores, then one after another 5 comparisons with
PyTorch and 100 timed calls. Rows are kept in runs/gpu_throughput (or --work DIR).
Writes benchmarks/results/gpu_throughput.GPU.json; exits 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench_io import bar
from gpu_bench import Rows, this_gpu, write_report
from judging import Pair, fresh_cache, honest_pairs, judge_many, lines_of, write_pairs

from coding_framework.cuda.toolchain.slots import available_cores

VERDICTS_AN_HOUR, AIM, TIMES_KERNELBENCH = 25_000, 40_000, 20.0
_KERNELS = {"ours": 4000, "kernelbench": 32}
_LOOK_S = 0.5

KERNELBENCH_WORKER = """
import json, sys, time
import torch
from torch.utils.cpp_extension import load

folder, stage = sys.argv[1], sys.argv[2]
task = json.load(open(f"{folder}/task.json"))
started = time.time()
module = load("kernel", [f"{folder}/kernel.cu"], build_directory=folder, verbose=False)
if stage == "compile":
    print(json.dumps({"s": time.time() - started}))
    sys.exit(0)
space = {}
exec(task["reference"], space)
shapes = task["shapes"]
dtypes = [getattr(torch, d) for d in task["dtypes"]]
model = space["Model"](*task["init_args"]).cuda()
state = [t.contiguous() for t in model.state_dict().values()]
def draw():
    made = []
    for shape, dtype, (low, high) in zip(shapes, dtypes, task["ranges"]):
        unit = torch.rand(shape, device="cuda")
        made.append((low + (high - low) * unit).to(dtype))
    return made
started = time.time()
right = True
with torch.no_grad():
    for trial in range(5):
        inputs = draw()
        torch.cuda.synchronize()
        wanted = model(*inputs)
        got = module.forward(*inputs, *state)
        torch.cuda.synchronize()
        right = right and torch.allclose(got, wanted, atol=1e-2, rtol=1e-2)
    inputs = draw()
    for f in (lambda: model(*inputs), lambda: module.forward(*inputs, *state)):
        for _ in range(3):
            f()
        for _ in range(100):
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            a.record(); f(); b.record(); torch.cuda.synchronize()
            a.elapsed_time(b)
print(json.dumps({"s": time.time() - started, "right": bool(right)}))
"""
"""What KernelBench's evaluation does to a kernel, in a process of its own."""


def mixed_pairs(count: int) -> list[Pair]:
    """So many kernels, all those of some tasks, mixed: tasks and places are drawn at random, but in
    each run alike. The kernels of one task keep their order, the naive one first."""
    of_task: dict[str, deque[Pair]] = defaultdict(deque)
    for pair in honest_pairs():
        of_task[pair["task"]].append(pair)
    generator = random.Random(0)
    tasks = sorted(of_task)
    generator.shuffle(tasks)
    places = [task for task in tasks for _ in of_task[task]][:count]
    generator.shuffle(places)
    return [of_task[task].popleft() for task in places]


def run_ours(rows: Rows, kernels: int, minutes: float, options: list[str]) -> None:
    """`judge-many` on so many, for so long; how many verdicts had come when, and what they were."""
    pairs = rows.folder / f"pairs{kernels}.jsonl"
    if not pairs.exists():
        write_pairs(pairs, mixed_pairs(kernels))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        output = work / "verdicts.jsonl"
        command = judge_many(pairs, output, "--backend", "cuda", "--baselines", "none", *options)
        samples = []
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            env=fresh_cache(work / "cache"),
        )  # fmt: skip
        while process.poll() is None and time.monotonic() - started < 60 * minutes:
            time.sleep(_LOOK_S)
            samples.append((round(time.monotonic() - started, 2), _count(output)))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            said = process.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[1]
        verdicts = lines_of(output)
    statuses = Counter(v.get("status", "error") for v in verdicts)
    wrong = [
        {"id": v["id"], "status": v.get("status"), "why": v.get("reason", v.get("error"))}
        for v in verdicts
        if v.get("status") != "correct"
    ]
    timed = [v["timing"] for v in verdicts if v.get("timing")]
    rows.add(
        "ours",
        {
            "samples": samples[:: max(1, len(samples) // 20)],
            "rate": rate(samples),
            "rate_from_the_start": rate(samples, from_start=True),
            "rate_of_the_last_two_minutes": rate(
                [s for s in samples if s[0] > samples[-1][0] - 120]
            ),
            "kernels": kernels,
            "verdicts": len(verdicts),
            "statuses": statuses,
            "not_correct": wrong[:40],
            "measured": sum(not t["modelled"] for t in timed),
            "duration_s": _spread([v["receipt"]["duration_s"] for v in verdicts if "receipt" in v]),
            "options": options,
            "said": said.decode(errors="replace")[-1500:],
        },
    )
    if not verdicts:
        print(said.decode(errors="replace")[-1500:])
    print(f"{len(verdicts)} verdicts, {rate(samples):.0f} an hour; {dict(statuses)}")


def rate(samples: list[tuple[float, int]], *, from_start: bool = False) -> float:
    """Verdicts an hour, from the first verdict to the last look, or from the start."""
    begun = [(0.0, 0)] if from_start else [s for s in samples if s[1] > 0][:1]
    if not begun or not samples or samples[-1][0] <= begun[0][0]:
        return 0.0
    (t0, n0), (t1, n1) = begun[0], samples[-1]
    return 3600 * (n1 - n0) / (t1 - t0)


def _count(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0


def _spread(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=20)
    return {"p5": cuts[0], "median": statistics.median(values), "p95": cuts[-1]}


def run_kernelbench(rows: Rows, kernels: int) -> None:
    """The same kernels KernelBench's way: wall time of both stages."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folders = _kernelbench_folders(rows, work, kernels)
        started = time.monotonic()
        with ThreadPoolExecutor(available_cores()) as threads:
            compiled = list(threads.map(lambda f: _kernelbench(f, "compile"), folders))
        compile_s = time.monotonic() - started
        started = time.monotonic()
        judged = [_kernelbench(f, "evaluate") for f in folders]
        evaluate_s = time.monotonic() - started
    failed = sum("s" not in one for one in (*compiled, *judged))
    rows.add(
        "kernelbench",
        {
            "kernels": len(folders),
            "compile_s": compile_s,
            "evaluate_s": evaluate_s,
            "compile_each_s": _spread([c["s"] for c in compiled if "s" in c]),
            "evaluate_each_s": _spread([j["s"] for j in judged if "s" in j]),
            "right": sum(bool(j.get("right")) for j in judged),
            "failed": failed,
            "rate": 3600 * len(folders) / (compile_s + evaluate_s),
        },
    )
    print(f"{len(folders)} kernels in {compile_s:.0f} + {evaluate_s:.0f} s, {failed} failed")


def _kernelbench_folders(rows: Rows, work: Path, kernels: int) -> list[Path]:
    from coding_framework.data.synthesis.catalog import find

    folders = []
    of_ours = {row["key"]: row for row in rows}.get("ours", {}).get("kernels", _KERNELS["ours"])
    for i, pair in enumerate(mixed_pairs(of_ours)[:kernels]):
        task = find(pair["task"])
        assert task is not None
        case = (task.gpu_cases or task.cases)[0]
        folder = work / f"k{i}"
        folder.mkdir()
        (folder / "kernel.cu").write_text(pair["code"])
        described: dict[str, Any] = {
            "reference": task.reference,
            "init_args": list(case.init_args or task.init_args),
            "shapes": [list(spec.shape) for spec in case.inputs],
            "dtypes": [spec.dtype for spec in case.inputs],
            "ranges": [
                [-1.0 if s.low is None else s.low, 1.0 if s.high is None else s.high]
                for s in case.inputs
            ],
        }
        (folder / "task.json").write_text(json.dumps(described))
        folders.append(folder)
    return folders


def _kernelbench(folder: Path, stage: str) -> dict[str, Any]:
    environment = {**os.environ, "MAX_JOBS": "1", "TORCH_CUDA_ARCH_LIST": "9.0"}
    command = [sys.executable, "-c", KERNELBENCH_WORKER, str(folder), stage]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except (ValueError, IndexError):
        return {"error": done.stderr.strip()[-500:]}


def report(rows: Rows) -> bool:
    """Bars and figures."""
    by = {row["key"]: row for row in rows}
    ours, theirs = by.get("ours", {}), by.get("kernelbench", {})
    hourly = ours.get("rate", 0.0)
    times = hourly / theirs["rate"] if theirs.get("rate") else None
    statuses = ours.get("statuses", {})
    wrong = sum(n for status, n in statuses.items() if status != "correct")
    share = wrong / max(1, sum(statuses.values()))
    bars = [
        bar("verdicts an hour", VERDICTS_AN_HOUR, round(hourly), hourly >= VERDICTS_AN_HOUR),
        bar("verdicts an hour, the aim", AIM, round(hourly), hourly >= AIM),
        bar(
            "times KernelBench's way, same kernels and cores",
            TIMES_KERNELBENCH, times, times is not None and times >= TIMES_KERNELBENCH,
        ),
        bar("honest kernels that were not correct", 0.01, share, bool(statuses) and share <= 0.01),
    ]  # fmt: skip
    return write_report("gpu_throughput", bars, {"rows": list(rows)})


def main() -> int:
    """One part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=("ours", "kernelbench", "report"), required=True)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--kernels", type=int, help="default: ours 4000, kernelbench 32")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--work", type=Path, help="folder of the rows")
    args = parser.parse_args()
    this_gpu()
    rows = Rows("gpu_throughput", args.work)
    kernels = args.kernels or _KERNELS.get(args.part, 0)
    if args.part == "ours":
        options = ["--workers", str(args.workers), "--sandbox", args.sandbox]
        run_ours(rows, kernels, args.minutes, options)
    elif args.part == "kernelbench":
        run_kernelbench(rows, kernels)
    else:
        return 0 if report(rows) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What PyTorch takes for the problems of KernelBench, at their own sizes: eager, and compiled.

    uv run python benchmarks/kernelbench_baselines.py --problems FILE [--mode eager] [--minutes 8]
    uv run python benchmarks/kernelbench_baselines.py --problems FILE --mode compiled --workers 6
    uv run python benchmarks/kernelbench_baselines.py --problems FILE --mode report

FILE: rows {"level", "problem_id", "name", "code"}. Times are device times by the protocol of a
verdict (gpu/baselines.py). Each problem runs in a process of its own, so that one that does not fit
the memory, or hangs, costs no other; `compiled` has several at once, which compile together and are
timed one by one, and those that found no room beside others are tried again alone. Rows are kept in
runs/kernelbench_baselines (or --work DIR): the same command goes on where it was stopped. `report`
writes benchmarks/results/kernelbench_baselines.GPU.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from bench_io import bar
from gpu_bench import Deadline, Row, Rows, this_gpu, write_report

PROBLEMS = 200
_PROBLEM_S = 240.0
_FULL = re.compile("out of memory|DeviceFullError", re.IGNORECASE)


def time_problem(source: str, mode: str) -> Row:
    """One problem's time, in this process."""
    import torch

    from coding_framework.cuda.gpu.baselines import time_compiled, time_model
    from coding_framework.cuda.gpu.event_cost import protocol_on
    from coding_framework.cuda.gpu.place import place_of

    place = place_of(this_gpu())
    space: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "<problem>", "exec"), space)
    with torch.device(place.device), torch.no_grad():
        torch.manual_seed(0)
        model = space["Model"](*space["get_init_inputs"]()).to(place.device)
        draws = [tuple(_moved(value, place.device) for value in space["get_inputs"]())
                 for _ in range(2)]  # fmt: skip
        time_it = time_model if mode == "eager" else time_compiled
        timing = time_it(_Tensors(model, draws[0]), [_tensors(d) for d in draws], place,
                         protocol_on(this_gpu()))  # fmt: skip
    if timing is None:
        return {"failed": "torch.compile cannot compile it"}
    return {
        "ms": timing.median_ms,
        "ci95_ms": [timing.low_ms, timing.high_ms],
        "samples": timing.samples,
        "settled": timing.settled,
        "peak_bytes": torch.cuda.max_memory_allocated(place.device),
    }


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _tensors(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(v for v in values if hasattr(v, "to"))


def _Tensors(model: Any, values: tuple[Any, ...]) -> Any:  # noqa: N802 - makes a module
    """The model as a function of its tensors alone; numbers among its inputs stay as they are."""
    from torch import nn

    if all(hasattr(v, "to") for v in values):
        return model

    class OfTensors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            left = iter(tensors)
            return self.model(*(next(left) if hasattr(v, "to") else v for v in values))

    return OfTensors()


def run(rows: Rows, problems: list[Row], mode: str, deadline: Deadline, workers: int) -> None:
    """Every problem that has no row of this mode yet."""
    for at_once in (workers, 1):  # what found no room beside others is tried again alone
        _run(rows, problems, mode, deadline, at_once)


def _run(rows: Rows, problems: list[Row], mode: str, deadline: Deadline, workers: int) -> None:
    left = [p for p in problems if f"{mode}/{_name(p)}" not in rows]
    with ThreadPoolExecutor(workers) as threads:
        running = {threads.submit(_in_a_process, p, mode, deadline): p for p in left}
        for future in as_completed(running):
            problem, row = running[future], future.result()
            if row is None or (workers > 1 and _FULL.search(row.get("failed", ""))):
                continue
            rows.add(f"{mode}/{_name(problem)}", {"mode": mode, "name": _name(problem), **row})
            said = row.get("failed") or f"{row['ms']:.4f} ms"
            print(f"{mode} {_name(problem):60s} {said}", flush=True)


def _in_a_process(problem: Row, mode: str, deadline: Deadline) -> Row | None:
    if deadline:
        return None
    command = [sys.executable, __file__, "--mode", "one", "--one", mode]
    try:
        done = subprocess.run(
            command, input=problem["code"], capture_output=True, text=True, check=False,
            timeout=min(_PROBLEM_S, max(30.0, deadline.left_s)),
        )  # fmt: skip
        found: Row = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return None if deadline else {"failed": f"not done within {_PROBLEM_S:.0f} s"}
    except (ValueError, IndexError):
        return {"failed": (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]}


def _name(problem: Row) -> str:
    return f"level{problem['level']}/{problem['name']}"


def report(rows: Rows, problems: list[Row]) -> bool:
    """The table, and how many problems have their times."""
    table: dict[str, Row] = {_name(p): {} for p in problems}
    for row in rows:
        table[row["name"]][row["mode"]] = {
            k: v for k, v in row.items() if k in ("ms", "failed") or (k == "settled" and not v)
        }
    bars = []
    for mode in ("eager", "compiled"):
        told = sum(mode in one for one in table.values())
        timed = sum("ms" in one.get(mode, {}) for one in table.values())
        what = f"problems with a {mode} time, or with the reason why they have none"
        bars.append(bar(what, PROBLEMS, told, told >= PROBLEMS))
        print(f"{mode}: {timed} timed, {told - timed} with a reason")
    return write_report("kernelbench_baselines", bars, {"problems": table})


def main() -> int:
    """One part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--problems", type=Path, help="JSON lines of problems")
    parser.add_argument("--mode", choices=("eager", "compiled", "report", "one"), default="eager")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder of the rows")
    args = parser.parse_args()
    if args.mode == "one":
        print(json.dumps(time_problem(sys.stdin.read(), args.one)))
        return 0
    if args.problems is None:
        parser.error("--problems FILE is needed: KernelBench's problems, a JSON line each")
    this_gpu()
    rows = Rows("kernelbench_baselines", args.work)
    problems = [json.loads(line) for line in args.problems.read_text().splitlines()]
    if args.mode == "report":
        return 0 if report(rows, problems) else 1
    run(rows, problems, args.mode, Deadline(args.minutes), args.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())

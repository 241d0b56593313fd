"""The emulator against hardware: outputs, counters and modelled times of the same kernels.

    uv run python benchmarks/emulator_vs_gpu.py --part kernels [--minutes 8]  (again until done)
    uv run python benchmarks/emulator_vs_gpu.py --part ncu [--minutes 8]
    uv run python benchmarks/emulator_vs_gpu.py --part report
    uv run python benchmarks/emulator_vs_gpu.py --part clock \\
        --from benchmarks/results/emulator_vs_gpu.h200.rows.jsonl                   (needs no GPU)
    uv run python benchmarks/emulator_vs_gpu.py --part report \\
        --from benchmarks/results/emulator_vs_gpu.h200.rows.jsonl                   (needs no GPU)

Synthesised kernels (levels in turn, tasks spread over the catalogue, at their GPU sizes but matrix
products) and the hand-written ladder of gpu_plans.py. `kernels` runs each on the emulator and on
the GPU with the same inputs and times it; `ncu` counts them all in a few runs of Nsight Compute.
The time model is fitted on one half (by the digest of the name) and tested on the other
(time_model_fit.py). `report` writes benchmarks/results/emulator_vs_gpu.GPU.json, with what the fit
says of gpus.yaml and where it fails, and exits 1 where a bar does not hold; beside it, as
.rows.jsonl, what was measured, so that `--from` makes the report again with another model. `clock`
adds the short kernels of gpu_timing.py to those rows, after its report: what a launch costs shows
where little else is done.
`--choice 1` to 14, with each part, takes other synthesised kernels, to which nothing is fitted:
they test gpus.yaml as it is, and their report is emulator_vs_gpu_CHOICE. Rows are kept in
runs/emulator_vs_gpu (with _CHOICE; or --work DIR).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_io import RESULTS
from emulator_vs_gpu_report import DURATION, METRICS, NAME, as_kept, keep_rows, kept_rows, report
from gpu_bench import Deadline, Row, Rows, session_here, short_name, this_gpu
from gpu_plans import PlannedKernel, build, clock_kernels, ladder, strides

from coding_framework.cuda.choose_backend import make_backend
from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.emulator.modelled_time import modelled_time_ms, transfers
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.expected.inputs import draw_large_inputs
from coding_framework.cuda.expected.reference import (
    Expectation,
    reference_model,
    task_digest,
    weights_seed,
)
from coding_framework.cuda.expected.signature import ModelSignature
from coding_framework.cuda.expected.tolerance import ExpectedOutput
from coding_framework.cuda.gpu.device import CudaDevice
from coding_framework.cuda.gpu.event_cost import protocol_on
from coding_framework.cuda.host.case_run import Output
from coding_framework.cuda.plan.launch_plan import CandidateFault, LaunchPlan
from coding_framework.cuda.timing.profiler import ReplayFiles, profile_plans
from coding_framework.cuda.timing.statistics import summary
from coding_framework.cuda.toolchain.slots import available_cores
from coding_framework.data.synthesis import catalog
from coding_framework.types import KernelExample, Task, TestCase

SYNTHESISED = 110
_BUDGET = 4_000_000_000
_NCU_BATCH = 30
_SHORT_CLOCK_US = 50.0
"""Kernels of gpu_timing.py below it take the emulator seconds."""


# --- the kernels ----------------------------------------------------------------------------------


def synthesised(choice: int) -> Iterator[tuple[Task, KernelExample]]:
    """One kernel a task, of levels in turn; two levels of every fourth task, as a pair. choice:
    each number up to 14 gives other tasks."""
    programs = catalog.catalog()
    places = (i * len(programs) // SYNTHESISED + choice for i in range(SYNTHESISED))
    for i, place in enumerate(places):
        task = catalog.build_task(programs[place % len(programs)])
        kernels = catalog.kernels_of(task.name)
        yield task, kernels[i % len(kernels)]
        if i % 4 == 0 and len(kernels) > 1:
            yield task, kernels[(i + 1) % len(kernels)]


def case_of(task: Task) -> TestCase:
    """The shape set that both devices run: that of a GPU where the emulator can run it."""
    terms = task.gpu_cases[0].reduction_length if task.gpu_cases else 1
    product = "matmul" in task.name or len(task.gpu_cases[0].inputs[0].shape) != 2
    return task.cases[0] if product or terms > 1 << 16 or not task.gpu_cases else task.gpu_cases[0]


def run_synthesised(folder: Path, task: Task, example: KernelExample) -> Row:
    """One kernel on both devices, by the judge's own setup; its replay goes to `folder`."""
    from coding_framework.cuda.judge import JudgeConfig
    from coding_framework.cuda.timing.measurement import measure_plan
    from coding_framework.cuda.trial.setup import TrialSetting, open_setup

    compiler, host_cpu_s = _compiler(), JudgeConfig().host_cpu_s
    compiled = compiler.compile_source(example.code)
    if not compiled.success or compiled.binary_path is None:
        return {"skipped": compiled.reason}
    found, sandbox = Path(compiled.binary_path), compiler.sandbox
    draws = [_draw(task, case_of(task), seed) for seed in range(2)]
    first, protocol = draws[0], protocol_on(this_gpu())
    names = first.signature.parameter_names
    with open_setup(TrialSetting(found, sandbox, host_cpu_s, _emulator()), first) as setup:
        _, on_emulator = setup.run.host_run(setup.host, first.tensors, first.scalars, names)
    with open_setup(TrialSetting(found, sandbox, host_cpu_s, _gpu()), first) as setup:
        plan, on_gpu = setup.run.host_run(setup.host, first.tensors, first.scalars, names)
        files = ReplayFiles(found, plan, setup.module, setup.run.contents(plan, first.tensors))
        device = setup.equipment.device
        assert isinstance(device, CudaDevice)
        if plan.reads_back:
            return {"skipped": "its launches depend on values"}
        timing = measure_plan(
            device, setup.run, plan, draws, lambda *_: None, protocol, fresh=True
        ).timing
    _keep(folder, files)
    reports = zip(on_emulator.reports, plan.launches, strict=True)
    return {
        "launches": [_report_row(report.counters, launch) for report, launch in reports],
        "transfers": transfers(plan),
        "modelled_us": 1e3 * (modelled_time_ms(plan, on_emulator.reports, this_gpu().name) or 0.0),
        "measured_us": 1e3 * timing.median_ms,
        "equal": all(map(_equal, on_emulator.outputs, on_gpu.outputs)),
        "group": task.name,
    }


def _draw(task: Task, case: TestCase, seed: int) -> Expectation:
    """Inputs and parameters of one draw, without the float64 reference and its bounds: the two
    devices are compared with each other."""
    digest = task_digest(task)
    inputs = draw_large_inputs(case, b"benchmark", digest, seed, torch.device("cpu"))
    weights = weights_seed(b"benchmark", digest, case, seed)
    with reference_model(task, case, weights, inputs) as (model, state):
        parameters = tuple(t.detach().clone().contiguous() for t in state.values())
        with torch.no_grad():
            result = model(*(t.clone() for t in inputs))
    natives = result if isinstance(result, (tuple, list)) else (result,)
    signature = ModelSignature(case.init_args or task.init_args, tuple(state))
    outputs = tuple(ExpectedOutput(n, n, None) for n in natives)
    return Expectation(seed, inputs, parameters, signature, outputs)


def _equal(one: Output, other: Output) -> bool:
    if not one.tensor.is_floating_point():
        return torch.equal(one.tensor, other.tensor)
    scale = float(other.tensor.abs().nan_to_num(0.0, 0.0, 0.0).max()) if other.raw.numel() else 0.0
    return torch.allclose(one.tensor, other.tensor, rtol=1e-4, atol=1e-5 * scale, equal_nan=True)


def run_planned(folder: Path, kernel: PlannedKernel, *, timed: bool = True) -> Row:
    """One kernel of gpu_plans.py on both devices."""
    made = build(_compiler())
    contents = kernel.contents()
    counted, emulated = emulate(kernel)
    with CudaDevice() as gpu:
        module = gpu.load(made)
        plan, x, o = kernel.place(gpu)
        gpu.upload(x, contents.tobytes())
        gpu.launch(plan.launches[0])
        real = np.frombuffer(gpu.download(o, kernel.output_bytes), np.float32)
        times = _times(gpu, kernel, plan, x, o) if timed else {}
    regions = [(x, kernel.input_bytes, contents.tobytes()), (o, kernel.output_bytes, None)]
    _keep(folder, ReplayFiles(made, plan, module, regions))
    scale = float(np.abs(real).max())
    return {
        **counted,
        **times,
        "equal": bool(np.allclose(emulated, real, rtol=1e-5, atol=1e-5 * scale)),
        "group": kernel.group,
    }


def _times(gpu: CudaDevice, kernel: PlannedKernel, plan: LaunchPlan, x: int, o: int) -> Row:
    region = (x, kernel.input_bytes, 4)
    for draw in range(2):
        gpu.stage(region, 2, draw, torch.from_numpy(kernel.contents(draw)))
    outputs, protocol = [(o, kernel.output_bytes)], protocol_on(gpu.gpu)
    raw = gpu.measure(plan, [region], outputs, outputs, 2, protocol)
    return {"measured_us": 1e3 * summary(raw["samples_ms"], protocol).median_ms}


def emulate(kernel: PlannedKernel) -> tuple[Row, np.ndarray[Any, np.dtype[np.float32]]]:
    """What the emulator counts, and its output."""
    settings = EmulatorSettings(instruction_budget=_BUDGET, cpu_limit_s=300.0)
    with EmulatorDevice(settings) as device:
        device.load(build(_compiler()))
        plan, x, o = kernel.place(device)
        device.upload(x, kernel.contents().tobytes())
        report = device.launch(plan.launches[0])
        output = np.frombuffer(device.download(o, kernel.output_bytes), np.float32)
    return {
        "launches": [_report_row(report.counters, plan.launches[0])],
        "modelled_us": 1e3 * (report.time_ms or 0.0),
    }, output


def _report_row(counters: dict[str, float], launch: Any) -> Row:
    return {"counters": counters, "grid": launch.grid, "block": launch.block}


def _keep(folder: Path, files: ReplayFiles) -> None:
    """A replay for the part that counts: on this machine, where the build is as well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.open("wb") as file:
        pickle.dump(files, file)


# --- parts ----------------------------------------------------------------------------------------


def run_kernels(rows: Rows, deadline: Deadline, choice: int, only: str) -> None:
    """Every kernel that has no row yet, several at once: the emulator takes a core each."""
    left = [name for name in _jobs(choice) if name not in rows and re.search(only, name)]
    end = time.time() + deadline.left_s
    workers = max(1, available_cores() // 2)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as processes:
        running = [processes.submit(run_one, name, choice, rows.folder, end) for name in left]
        for future in as_completed(running):
            name, row = future.result()
            if row is not None:
                rows.add(name, row)
                print(name, row.get("skipped") or f"{row.get('measured_us', 0):.1f} us", flush=True)


def run_one(name: str, choice: int, folder: Path, end: float) -> tuple[str, Row | None]:
    """One kernel in a worker process; None after the end."""
    if time.time() > end:
        return name, None
    torch.set_num_threads(1)
    try:
        return name, _jobs(choice)[name](_replay(folder, name))
    except CandidateFault as fault:
        return name, {"skipped": f"{fault.status.value}: {fault.reason}"}
    except Exception as e:  # one kernel must not cost the others
        return name, {"skipped": f"{type(e).__name__}: {e}", "ours": True}


@functools.cache
def _jobs(choice: int) -> dict[str, Callable[[Path], Row]]:
    jobs: dict[str, Callable[[Path], Row]] = {}
    if not choice:
        for kernel in ladder():
            jobs[f"ladder/{kernel.name}"] = functools.partial(run_planned, kernel=kernel)
        for kernel in strides():
            jobs[f"strides/{kernel.name}"] = functools.partial(
                run_planned, kernel=kernel, timed=False
            )
    for task, example in synthesised(choice):
        jobs[f"{task.name}/{example.level}"] = functools.partial(
            run_synthesised, task=task, example=example
        )
    return jobs


def run_clock(kept: Path) -> None:
    """Rows of the short kernels that gpu_timing.py timed on the same GPU, with the emulator's
    counters, beside the kept ones: their outputs were not compared. Needs no GPU."""
    session, rows = kept_rows(kept)
    name = f"gpu_timing.{short_name(session['gpu']['name'])}.json"
    clock = json.loads((RESULTS / name).read_text())
    timed = {r["kernel"]: r["us"] for r in clock["rows"] if r["part"] == "first"}
    there = {r["key"].replace("ladder/", "clock/") for r in rows}
    for kernel in clock_kernels():
        key, us = f"clock/{kernel.name}", timed[kernel.name]
        if key in there or us > _SHORT_CLOCK_US:
            continue
        counted, _ = emulate(kernel)
        rows.append({"key": key, "launches": counted["launches"], "measured_us": us,
                     "group": kernel.group or kernel.name, "measured": clock["date"]})  # fmt: skip
        print(key, f"{us:.1f} us", flush=True)
    keep_rows(session, rows)


def run_ncu(rows: Rows, deadline: Deadline) -> None:
    """Hardware counters of every kernel that has none yet and whose replay is on this machine."""
    names = [r["key"] for r in rows if "launches" in r and "ncu" not in r]
    here = [name for name in names if _replay(rows.folder, name).exists()]
    for start in range(0, len(here), _NCU_BATCH):
        if deadline:
            return
        batch = here[start : start + _NCU_BATCH]
        files = []
        for name in batch:
            with _replay(rows.folder, name).open("rb") as file:
                files.append(pickle.load(file))
        profiles = profile_plans(files, this_gpu(), METRICS, max(60.0, deadline.left_s))
        for name, profile in zip(batch, profiles, strict=True):
            if profile.note:
                print(profile.note)
                continue
            row = next(r for r in rows if r["key"] == name)
            rows.add(name, {**row, "ncu": [r.counters for r in profile.reports]})


def counted_again(session: Row, kept: list[Row], newer: Rows) -> tuple[Row, list[Row]]:
    """The kept rows with the counters of a later part, and the kernels that they had not; kept
    instead of those before. Times stay those of the session that they are from."""
    of = {row["key"]: as_kept(row) for row in newer if "ncu" in row}
    rows = []
    for row in kept:
        later = of.pop(row["key"], None)
        if later is not None and _counts(later) == _counts(row):
            row = {**row, "ncu": later["ncu"]}
        rows.append(row)
    rows += ({k: v for k, v in row.items() if k != "measured_us"} for row in of.values())
    keep_rows(session, rows)
    return session, rows


def _counts(row: Row) -> list[Row]:
    """What the emulator counted, without the time that it makes of it."""
    return [{k: v for k, v in one["counters"].items() if k != DURATION} for one in row["launches"]]


def _replay(folder: Path, name: str) -> Path:
    return folder / "replays" / hashlib.sha256(name.encode()).hexdigest()[:16]


_made: dict[str, Any] = {}


def _compiler() -> CUDACompiler:
    if "compiler" not in _made:
        _made["compiler"] = CUDACompiler()
    found: CUDACompiler = _made["compiler"]
    return found


def _emulator() -> Any:
    return _made.setdefault("emulator", make_backend("emulator", "none", 10.0))


def _gpu() -> Any:
    if "gpu" not in _made:
        _made["gpu"] = make_backend("cuda", "none", 10.0)
    return _made["gpu"]


def main() -> int:
    """One part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=("kernels", "ncu", "clock", "report"), required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--work", type=Path, help="folder of the rows")
    parser.add_argument("--choice", type=int, default=0, help="which kernels (above)")
    parser.add_argument("--only", default="", help="kernels whose names this expression finds")
    parser.add_argument("--from", type=Path, dest="kept", help="rows that a report came with")
    args = parser.parse_args()
    if args.kept and args.part not in ("clock", "report"):
        parser.error("--from goes with --part report and --part clock")
    if args.part == "clock":
        if not args.kept:
            parser.error("--part clock needs --from: the rows that a report came with")
        run_clock(args.kept)
        return 0
    if args.kept:
        session, rows = kept_rows(args.kept)
        if args.work:
            session, rows = counted_again(session, rows, Rows(NAME, args.work))
        return 0 if report(session, rows, again=True) else 1
    name = f"{NAME}_{args.choice}" if args.choice else NAME
    kept, deadline = Rows(name, args.work), Deadline(args.minutes)
    if args.part == "report":
        session = {**session_here(name), "choice": args.choice}
        keep_rows(session, list(kept))
        return 0 if report(session, list(kept)) else 1
    torch.set_num_threads(1)
    if args.part == "kernels":
        run_kernels(kept, deadline, args.choice, args.only)
    else:
        run_ncu(kept, deadline)
    return 0


if __name__ == "__main__":
    sys.exit(main())

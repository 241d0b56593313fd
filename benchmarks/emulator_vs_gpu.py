"""The emulator against hardware: outputs, counters and modelled times of the same kernels.

    uv run python benchmarks/emulator_vs_gpu.py --part kernels [--minutes 8]  (again until done)
    uv run python benchmarks/emulator_vs_gpu.py --part ncu [--minutes 8]
    uv run python benchmarks/emulator_vs_gpu.py --part report

Synthesised kernels (levels in turn, tasks spread over the catalogue, at their GPU sizes but matrix
products) and the hand-written ladder of gpu_plans.py. `kernels` runs each on the emulator and on
the GPU with the same inputs and times it; `ncu` counts them all in a few runs of Nsight Compute.
The time model is fitted on one half (by the digest of the name) and tested on the other: one factor
for each of its terms' scale. `report` writes benchmarks/results/emulator_vs_gpu.GPU.json, with what
the fit says of gpus.yaml and where it fails, and exits 1 where a bar does not hold. Rows are kept
in runs/emulator_vs_gpu (or --work DIR).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import math
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_io import bar
from gpu_bench import Deadline, Row, Rows, this_gpu, write_report
from gpu_plans import PlannedKernel, build, ladder
from scipy.optimize import minimize
from scipy.stats import spearmanr

from coding_framework.cuda.backends import make_backend
from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.gpu.device import CudaDevice
from coding_framework.cuda.inputs import draw_large_inputs
from coding_framework.cuda.model_new.signature import ModelSignature
from coding_framework.cuda.plan import CandidateFault
from coding_framework.cuda.profiler import ReplayFiles, profile_plans
from coding_framework.cuda.reference import Expectation, reference_model, task_digest
from coding_framework.cuda.run import Output
from coding_framework.cuda.slots import available_cores
from coding_framework.cuda.timing_statistics import TimingProtocol, summary
from coding_framework.cuda.tolerance import ExpectedOutput
from coding_framework.data.synthesis import catalog
from coding_framework.types import KernelExample, Task, TestCase

SYNTHESISED = 110
COUNTERS = {
    "global load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global store sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "shared bank conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
}
EXECUTED = "smsp__inst_executed.sum"
DURATION = "gpu__time_duration.sum"
METRICS = (*itertools.chain(*COUNTERS.values()), EXECUTED, DURATION, "dram__bytes.sum",
           "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum")  # fmt: skip
_BUDGET = 4_000_000_000
_PAIR_RATIO = 1.3
_NCU_BATCH = 30


# --- the kernels ----------------------------------------------------------------------------------


def synthesised() -> Iterator[tuple[Task, KernelExample]]:
    """One kernel a task, of levels in turn; two levels of every fourth task, as a pair."""
    programs = catalog.catalog()
    chosen = [programs[i * len(programs) // SYNTHESISED] for i in range(SYNTHESISED)]
    for i, program in enumerate(chosen):
        task = catalog.build_task(program)
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
    """One kernel on both devices, by the judge's own bench; its replay goes to `folder`."""
    from coding_framework.cuda.bench import open_bench
    from coding_framework.cuda.judge import JudgeConfig
    from coding_framework.cuda.measurement import measure_plan

    compiler, host_cpu_s = _compiler(), JudgeConfig().host_cpu_s
    compiled = compiler.compile_source(example.code)
    if not compiled.success or compiled.binary_path is None:
        return {"skipped": compiled.reason}
    found, sandbox = Path(compiled.binary_path), compiler.sandbox
    draws = [_draw(task, case_of(task), seed) for seed in range(2)]
    first, protocol = draws[0], TimingProtocol()
    names = first.signature.parameter_names
    with open_bench(found, first, sandbox, host_cpu_s, _emulator()) as bench:
        _, on_emulator = bench.run.host_run(bench.host, first.tensors, first.scalars, names)
    with open_bench(found, first, sandbox, host_cpu_s, _gpu()) as bench:
        plan, on_gpu = bench.run.host_run(bench.host, first.tensors, first.scalars, names)
        files = ReplayFiles(found, plan, bench.module, bench.run.contents(plan, first.tensors))
        device = bench.equipment.device
        assert isinstance(device, CudaDevice)
        if plan.reads_back:
            return {"skipped": "its launches depend on values"}
        timing = measure_plan(
            device, bench.run, plan, draws, lambda *_: None, protocol, fresh=True
        ).timing
    _keep(folder, files)
    reports = zip(on_emulator.reports, plan.launches, strict=True)
    return {
        "launches": [_report_row(report.counters, launch) for report, launch in reports],
        "modelled_us": 1e3 * sum(report.time_ms or 0.0 for report in on_emulator.reports),
        "measured_us": 1e3 * timing.median_ms,
        "equal": all(map(_equal, on_emulator.outputs, on_gpu.outputs)),
        "group": task.name,
    }


def _draw(task: Task, case: TestCase, seed: int) -> Expectation:
    """Inputs and parameters of one draw, without the float64 reference and its bounds: the two
    devices are compared with each other."""
    digest = task_digest(task)
    inputs = draw_large_inputs(case, b"benchmark", digest, seed, torch.device("cpu"))
    with reference_model(task, digest, case, b"benchmark", seed, inputs) as (model, state):
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


def run_planned(folder: Path, kernel: PlannedKernel) -> Row:
    """One kernel of the ladder on both devices."""
    made = build(_compiler())
    contents = kernel.contents()
    settings = EmulatorSettings(instruction_budget=_BUDGET, cpu_limit_s=300.0)
    with EmulatorDevice(settings) as device:
        device.load(made)
        plan, x, o = kernel.place(device)
        device.upload(x, contents.tobytes())
        report = device.launch(plan.launches[0])
        emulated = np.frombuffer(device.download(o, kernel.output_bytes), np.float32)
    with CudaDevice() as gpu:
        module = gpu.load(made)
        plan, x, o = kernel.place(gpu)
        gpu.upload(x, contents.tobytes())
        gpu.launch(plan.launches[0])
        real = np.frombuffer(gpu.download(o, kernel.output_bytes), np.float32)
        region = (x, kernel.input_bytes, 4)
        for draw in range(2):
            gpu.stage(region, 2, draw, torch.from_numpy(kernel.contents(draw)))
        outputs = [(o, kernel.output_bytes)]
        raw = gpu.measure(plan, [region], outputs, outputs, 2, TimingProtocol())
    timing = summary(raw["samples_ms"], TimingProtocol())
    regions = [(x, kernel.input_bytes, contents.tobytes()), (o, kernel.output_bytes, None)]
    _keep(folder, ReplayFiles(made, plan, module, regions))
    scale = float(np.abs(real).max())
    return {
        "launches": [_report_row(report.counters, plan.launches[0])],
        "modelled_us": 1e3 * (report.time_ms or 0.0),
        "measured_us": 1e3 * timing.median_ms,
        "equal": bool(np.allclose(emulated, real, rtol=1e-5, atol=1e-5 * scale)),
        "group": kernel.group,
    }


def _report_row(counters: dict[str, float], launch: Any) -> Row:
    return {"counters": counters, "grid": launch.grid, "block": launch.block}


def _keep(folder: Path, files: ReplayFiles) -> None:
    """A replay for the part that counts: on this machine, where the build is as well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.open("wb") as file:
        pickle.dump(files, file)


# --- parts ----------------------------------------------------------------------------------------


def run_kernels(rows: Rows, deadline: Deadline) -> None:
    """Every kernel that has no row yet, several at once: the emulator takes a core each."""
    names = [f"ladder/{kernel.name}" for kernel in ladder()]
    names += [f"{task.name}/{example.level}" for task, example in synthesised()]
    left = [name for name in names if name not in rows]
    end = time.time() + deadline.left_s
    workers = max(1, available_cores() // 2)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as processes:
        running = [processes.submit(run_one, name, rows.folder, end) for name in left]
        for future in as_completed(running):
            name, row = future.result()
            if row is not None:
                rows.add(name, row)
                print(name, row.get("skipped") or f"{row['measured_us']:.1f} us", flush=True)


def run_one(name: str, folder: Path, end: float) -> tuple[str, Row | None]:
    """One kernel in a worker process; None after the end."""
    if time.time() > end:
        return name, None
    torch.set_num_threads(1)
    try:
        return name, _jobs()[name](_replay(folder, name))
    except CandidateFault as fault:
        return name, {"skipped": f"{fault.status.value}: {fault.reason}"}
    except Exception as e:  # one kernel must not cost the others
        return name, {"skipped": f"{type(e).__name__}: {e}", "ours": True}


@functools.cache
def _jobs() -> dict[str, Callable[[Path], Row]]:
    jobs: dict[str, Callable[[Path], Row]] = {
        f"ladder/{kernel.name}": functools.partial(run_planned, kernel=kernel)
        for kernel in ladder()
    }
    for task, example in synthesised():
        jobs[f"{task.name}/{example.level}"] = functools.partial(
            run_synthesised, task=task, example=example
        )
    return jobs


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


def _replay(folder: Path, name: str) -> Path:
    return folder / "replays" / hashlib.sha256(name.encode()).hexdigest()[:16]


# --- what it comes to -----------------------------------------------------------------------------


def counter_errors(rows: Sequence[Row], names: Sequence[str]) -> dict[str, float]:
    """Relative error of a counter, summed over a kernel's launches, where hardware counts any."""
    errors = {}
    for row in rows:
        real = sum(c.get(n, 0.0) for c in row["ncu"] for n in names)
        ours = sum(one["counters"].get(n, 0.0) for one in row["launches"] for n in names)
        if real >= 32:
            errors[row["key"]] = abs(ours - real) / real
    return errors


def fitted(rows: Sequence[Row]) -> tuple[dict[str, float], Callable[[Row], float]]:
    """Factors on the terms of the time model that fit these rows best, and the model with them."""
    terms = (
        "issue",
        "fp32",
        "l1",
        "shared",
        "l2",
        "dram",
        "memory_latency",
        "dependency",
        "launch",
    )

    def modelled(row: Row, factors: dict[str, float]) -> float:
        return sum(_launch_us(one, factors) for one in row["launches"])

    def loss(logs: np.ndarray[Any, Any]) -> float:
        factors = dict(zip(terms, np.exp(logs), strict=True))
        errors = [abs(math.log(modelled(r, factors) / r["measured_us"])) for r in rows]
        return float(np.mean(errors)) + 0.01 * float(np.mean(logs**2))

    options = {"maxiter": 4000, "maxfev": 6000, "xatol": 1e-3, "fatol": 1e-5}
    best = minimize(loss, np.zeros(len(terms)), method="Nelder-Mead", options=options)
    factors = {name: float(f) for name, f in zip(terms, np.exp(best.x), strict=True)}
    return factors, lambda row: modelled(row, factors)


def _launch_us(one: Row, factors: dict[str, float]) -> float:
    """The emulator's time model with a factor on each term (timing_model.model_ms)."""
    from coding_framework.cuda.emulator import timing_model

    gpu = timing_model.gpu("h200")
    counters = one["counters"]
    held = timing_model.occupancy(
        gpu,
        int(counters["launch__block_size"]),
        int(counters["launch__registers_per_thread"]),
        int(counters["launch__shared_mem_per_block"]),
    )
    terms = timing_model.model_ms(gpu, counters, tuple(one["grid"]), tuple(one["block"]), held)
    launch = terms.pop("launch") * factors.get("launch", 1.0)
    terms.pop("total")
    work = sum((t * factors.get(name, 1.0)) ** 4 for name, t in terms.items()) ** 0.25
    return 1e3 * (work + launch)


def order_kept(rows: Sequence[Row], model: Callable[[Row], float]) -> tuple[int, int, list[str]]:
    """Pairs of one group whose measured ratio exceeds 1.3: how many, and in how many the model has
    the same order."""
    kept, pairs, failed = 0, 0, []
    for one, other in itertools.combinations(rows, 2):
        if one["group"] != other["group"]:
            continue
        fast, slow = sorted((one, other), key=lambda r: r["measured_us"])
        if slow["measured_us"] < _PAIR_RATIO * fast["measured_us"]:
            continue
        pairs += 1
        if model(fast) < model(slow):
            kept += 1
        else:
            failed.append(f"{fast['key']} < {slow['key']}")
    return kept, pairs, failed


def report(rows: Rows) -> bool:
    """Bars and figures."""
    run = [r for r in rows if "launches" in r]
    counted = [r for r in run if "ncu" in r]
    train = [r for r in run if int(hashlib.sha256(r["key"].encode()).hexdigest(), 16) % 2]
    test = [r for r in run if r not in train]
    unequal = [r["key"] for r in run if not r["equal"]]
    bars = [bar("kernels on both devices", 120, len(run), len(run) >= 120),
            bar("outputs that differ", 0, len(unequal), not unequal)]  # fmt: skip
    figures: Row = {
        "unequal": unequal,
        "skipped": {r["key"]: r["skipped"] for r in rows if "skipped" in r},
    }
    for what, names in COUNTERS.items():
        errors = counter_errors(counted, names)
        middle = statistics.median(errors.values()) if errors else None
        holds = middle is not None and middle <= 0.05
        bars.append(bar(f"{what}, median error", 0.05, middle, holds))
        worst = sorted(errors.items(), key=lambda kv: -kv[1])[:10]
        figures[what] = {"kernels": len(errors), "worst": worst}
    if len(counted) > 2:
        ours = [sum(c["counters"][EXECUTED] for c in r["launches"]) for r in counted]
        real = [sum(c.get(EXECUTED, 0.0) for c in r["ncu"]) for r in counted]
        figures["instruction_counts_spearman"] = float(spearmanr(ours, real).statistic)
    if len(train) > 10 and len(test) > 10:
        factors, model = fitted(train)
        predicted = {r["key"]: model(r) for r in test}
        errors = {r["key"]: abs(predicted[r["key"]] / r["measured_us"] - 1) for r in test}
        rank = float(spearmanr([predicted[r["key"]] for r in test],
                               [r["measured_us"] for r in test]).statistic)  # fmt: skip
        middle = statistics.median(errors.values())
        kept, pairs, failed = order_kept(run, model)
        bars += [
            bar("time, Spearman on the other half", 0.9, rank, rank >= 0.9),
            bar("time, median error on the other half", 0.25, middle, middle <= 0.25),
            bar("pairs over 1.3 in the right order", 0.9, kept / max(1, pairs),
                pairs > 0 and kept / pairs >= 0.9),
        ]  # fmt: skip
        figures |= {
            "factors": factors,
            "pairs": pairs,
            "pairs_in_the_wrong_order": failed,
            "worst_times": sorted(errors.items(), key=lambda kv: -kv[1])[:15],
            "before_fitting": statistics.median(
                abs(r["modelled_us"] / r["measured_us"] - 1) for r in test
            ),
        }
    slim = [{k: v for k, v in r.items() if k not in ("launches", "ncu")} for r in rows]
    return write_report("emulator_vs_gpu", bars, {**figures, "rows": slim})


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
    parser.add_argument("--part", choices=("kernels", "ncu", "report"), required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--work", type=Path, help="folder of the rows")
    args = parser.parse_args()
    rows, deadline = Rows("emulator_vs_gpu", args.work), Deadline(args.minutes)
    if args.part == "report":
        return 0 if report(rows) else 1
    torch.set_num_threads(1)
    if args.part == "kernels":
        run_kernels(rows, deadline)
    else:
        run_ncu(rows, deadline)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Nsight Compute on the replay of a plan: hardware counters under the emulator's names.

`ncu` runs a process of ours that loads the candidate's cubin and replays its plan once
(`gpu/profiled_replay.py`); it never runs candidate host code. The report is read by Nsight's own
Python module, in a process of its own. Where ncu is missing, or the machine forbids counters, there
is a note that says so and no counters: a verdict does not depend on them.

Clocks are left as they are (`--clock-control none`): the machine may be shared.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.device.gpu_sharing import Gpu, GpuLock
from coding_framework.cuda.device.remote import our_environment
from coding_framework.cuda.device.wire import packed
from coding_framework.cuda.plan.launch_plan import LaunchPlan, LaunchReport, ModuleInfo
from coding_framework.paths import cache_dir, write_json_atomic
from coding_framework.store.events import log

_PROFILE_S = 240.0
_QUERY_S = 120.0
_GLOBAL_WAYS = ("global_op_ld", "global_op_st", "global_op_atom", "local_op_ld", "local_op_st")
_SHARED_WAYS = ("shared_op_ld", "shared_op_st", "shared_op_atom")
CLASSES = (
    "fp32", "fp64", "fp16", "integer", "bit", "conversion", "memory", "control",
    "inter_thread_communication", "misc",
)  # fmt: skip
FLOPS = ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")
_STALLS = (
    "long_scoreboard", "short_scoreboard", "barrier", "math_pipe_throttle", "mio_throttle",
    "lg_throttle", "wait", "not_selected", "no_instruction", "membar", "branch_resolving",
    "dispatch_stall", "drain", "tex_throttle", "imc_miss", "sleeping",
)  # fmt: skip

METRICS: tuple[str, ...] = (
    "gpu__time_duration.sum",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__inst_executed_pipe_xu.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "smsp__sass_branch_targets.sum",
    "smsp__sass_branch_targets_threads_divergent.sum",
    *(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in (*CLASSES, *FLOPS)),
    *(f"l1tex__t_requests_pipe_lsu_mem_{way}.sum" for way in _GLOBAL_WAYS),
    *(f"l1tex__t_sectors_pipe_lsu_mem_{way}.sum" for way in _GLOBAL_WAYS),
    *(f"l1tex__t_output_wavefronts_pipe_lsu_mem_{way}.sum" for way in _GLOBAL_WAYS),
    *(f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_{way}.ratio" for way in _GLOBAL_WAYS),
    *(f"smsp__sass_data_bytes_mem_{way}.sum" for way in (*_GLOBAL_WAYS, *_SHARED_WAYS)),
    *(f"smsp__inst_executed_op_{way.replace('_op', '')}.sum" for way in _SHARED_WAYS),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_{way}.sum" for way in _SHARED_WAYS),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_{way}.sum" for way in _SHARED_WAYS),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "dram__bytes.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    *(f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio" for why in _STALLS),
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block",
)
"""What is asked for; those that a GPU does not have are left out. Units as Nsight gives them: time
in ns, rates in percent."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Maker: `profile_plan`. One report a launch, in order; none where `note` says why."""

    reports: tuple[LaunchReport, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """What a replay in a fresh process needs."""

    build: Path
    plan: LaunchPlan
    module: ModuleInfo
    """As the plan was recorded: where variables lay then."""
    regions: Sequence[tuple[int, int, bytes | None]]
    """(address, nbytes, contents or None) of all allocations in the order in which they were
    made."""

    def write(self, folder: Path) -> None:
        """To files that `gpu/profiled_replay.py` reads."""
        symbols = {s.name: [s.address, s.nbytes] for s in self.module.symbols.values()}
        text, parts = packed(
            {
                "build": str(self.build.resolve()),
                "ops": self.plan.ops,
                "symbols": symbols,
                "regions": self.regions,
            }
        )
        (folder / "replay.json").write_bytes(text)
        (folder / "blob").write_bytes(b"".join(parts))


def find_ncu() -> Path | None:
    """Nsight Compute's command line, on PATH or where its installers put it; None: not here."""
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path).resolve()
    places = [Path("/opt/nvidia/nsight-compute"), Path("/usr/local")]
    found = [p for place in places for p in place.glob("*/ncu")]
    found += Path("/usr/local").glob("cuda*/bin/ncu")
    return sorted(found)[-1].resolve() if found else None


def profile_plan(files: ReplayFiles, gpu: Gpu) -> Profile:
    """Counters of every launch of a plan. Never raises for what ncu does or does not find."""
    found = _profile(files, gpu)
    return Profile((), found) if isinstance(found, str) else Profile(tuple(map(report_of, found)))


def _profile(files: ReplayFiles, gpu: Gpu) -> list[dict[str, object]] | str:
    """One row a launch, or a sentence that says why there are none."""
    ncu = find_ncu()
    if ncu is None:
        return "no hardware counters: Nsight Compute (ncu) is not installed here"
    known = _known_metrics(str(ncu))
    asked = [m for m in METRICS if _is_known(m, known)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files.write(folder)
        command = [
            str(ncu), "--clock-control", "none", "--target-processes", "application-only",
            "--profile-from-start", "off", "--metrics", ",".join(asked),
            "--export", str(folder / "report"), "--force-overwrite",
            sys.executable, "-m", "coding_framework.cuda.gpu.profiled_replay", str(folder),
        ]  # fmt: skip
        lock = GpuLock(gpu.uuid)
        try:
            with lock.alone():
                said = _run(command, _PROFILE_S, _environment(gpu))
        finally:
            lock.close()
        report = folder / "report.ncu-rep"
        if not report.is_file():
            return _why_not(said)
        rows = _read(report, ncu)
    if rows is None:
        return "no hardware counters: Nsight's Python module cannot read its report"
    wanted = len(files.plan.launches)
    if len(rows) != wanted:
        return f"no hardware counters: ncu saw {len(rows)} launches of {wanted} ({_why_not(said)})"
    return rows


def report_of(row: dict[str, object]) -> LaunchReport:
    """One launch from the reader's JSON: counters under the names that were asked for."""
    metrics = row["metrics"]
    assert isinstance(metrics, dict)
    counters = {str(k): float(v) for k, v in metrics.items() if isinstance(v, (int, float))}
    duration = counters.get("gpu__time_duration.sum")
    return LaunchReport(str(row["kernel"]), counters, None if duration is None else duration / 1e6)


def _is_known(metric: str, known: frozenset[str]) -> bool:
    """Whether this ncu has the metric. An empty list of known ones refuses none, and the lists have
    none of what is known of a launch or counted by instruction."""
    unlisted = metric.startswith(("launch__", "memory_"))
    return not known or unlisted or metric.split(".")[0] in known


def _known_metrics(ncu: str) -> frozenset[str]:
    """Base names of the metrics that the GPU here has; kept a version of ncu. () where ncu does
    not say."""
    version = _version(ncu)
    path = cache_dir() / "profiler" / f"{re.sub(r'[^0-9.]', '', version) or 'unknown'}.json"
    try:
        return frozenset(json.loads(path.read_text()))
    except (OSError, ValueError):
        pass  # not asked yet
    listing = _run([ncu, "--query-metrics"], _QUERY_S, dict(os.environ))
    names = parse_metrics(listing)
    if names:
        write_json_atomic(path, sorted(names))
    return names


def parse_metrics(listing: str) -> frozenset[str]:
    """Base names from the lines "name  type  unit  description" of `ncu --query-metrics`."""
    return frozenset(re.findall(r"^([a-z0-9]+__[a-z0-9_]+)\b", listing, re.MULTILINE))


@lru_cache(maxsize=4)
def _version(ncu: str) -> str:
    found = re.search(r"Version ([\d.]+)", _run([ncu, "--version"], 60.0, dict(os.environ)))
    return found[1] if found else ""


def _read(report: Path, ncu: Path) -> list[dict[str, object]] | None:
    """The report's launches, by Nsight's module in a process of its own; None where that fails."""
    module = next(iter(sorted(ncu.parent.glob("extras/python/ncu_report.py"))), None)
    if module is None:  # `ncu` may be a script beside the real tree
        roots = [ncu.parent.parent, Path("/opt/nvidia/nsight-compute")]
        found = [p for root in roots for p in root.glob("**/extras/python/ncu_report.py")]
        if not found:
            return None
        module = sorted(found)[-1]
    environment = dict(os.environ)
    parts = [str(module.parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, parts))
    reader = Path(__file__).with_name("ncu_reader.py")
    said = _run([sys.executable, str(reader), str(report)], _QUERY_S, environment)
    try:
        rows: list[dict[str, object]] = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        log.warning("ncu_report_unreadable", said=said[-500:])
        return None
    return rows


def _why_not(said: str) -> str:
    if "ERR_NVGPUCTRPERM" in said:
        return (
            "no hardware counters: the driver allows them to administrators only (see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
        )
    lines = [line.strip("= ") for line in said.splitlines() if "==ERROR==" in line]
    reason = lines[0] if lines else (said.strip().splitlines() or ["ncu said nothing"])[-1]
    return f"no hardware counters: {reason[:300]}"


def _environment(gpu: Gpu) -> dict[str, str]:
    chosen = {"CUDA_VISIBLE_DEVICES": gpu.uuid, "CUDA_MODULE_LOADING": "EAGER"}
    return {**our_environment(), **chosen}


def _run(command: Sequence[str], seconds: float, environment: dict[str, str]) -> str:
    """What a command says, on both streams; "" where it cannot be run or does not end."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds,
            check=False, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"==ERROR== {e}"
    return done.stderr + done.stdout

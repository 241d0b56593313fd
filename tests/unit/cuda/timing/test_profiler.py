"""The profiler's pure parts, and what it says where there is no ncu."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cuda.device.gpu_sharing import Gpu
from coding_framework.cuda.device.wire import unpacked
from coding_framework.cuda.plan.launch_plan import (
    Launch,
    LaunchPlan,
    ModuleInfo,
    SymbolInfo,
    Upload,
)
from coding_framework.cuda.timing import profiler
from coding_framework.cuda.timing.profiler import METRICS, ReplayFiles, parse_metrics, report_of

pytestmark = pytest.mark.unit

GPU = Gpu(0, "GPU-none", "NVIDIA H200", 1 << 30, "580")
PLAN = LaunchPlan((), (Upload(16, b"table"), Launch("k", (1, 1, 1), (32, 1, 1), 0, b"\1" * 8)), ())
MODULE = ModuleInfo({}, {"t": SymbolInfo("t", 0x100, 8, "const")})


def test_every_metric_is_asked_for_once_and_under_nsights_own_name() -> None:
    assert len(set(METRICS)) == len(METRICS)
    assert all("__" in metric or metric.startswith("memory_") for metric in METRICS)


def test_metrics_have_the_names_of_the_emulators_counters() -> None:
    shared = (
        "smsp__inst_executed.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
        "dram__bytes.sum",
        "gpu__time_duration.sum",
    )
    assert set(shared) <= set(METRICS)


def test_known_metrics_are_read_from_ncus_listing() -> None:
    listing = (
        "Device NVIDIA H200 (GH100)\n-----\n"
        "Metric Name                                  Metric Type   Metric Unit   Description\n"
        "dram__bytes                                  Counter       byte          # of bytes\n"
        "smsp__inst_executed                          Counter       inst          # of warps\n"
    )
    known = parse_metrics(listing)
    assert known == {"dram__bytes", "smsp__inst_executed"}
    assert profiler._is_known("dram__bytes.sum", known)
    assert profiler._is_known("launch__grid_size", known)
    assert not profiler._is_known("l1tex__nothing.sum", known)
    assert profiler._is_known("l1tex__nothing.sum", frozenset())


def test_a_report_has_its_duration_in_ms() -> None:
    report = report_of(
        {"kernel": "k", "metrics": {"gpu__time_duration.sum": 5120.0, "dram__bytes.sum": 7}}
    )
    assert (report.kernel, report.time_ms) == ("k", 0.00512)
    assert report.counters["dram__bytes.sum"] == 7.0


def test_a_replay_in_files_is_the_same_plan(tmp_path: Path) -> None:
    ReplayFiles(tmp_path, PLAN, MODULE, [(256, 4, b"abcd"), (512, 8, None)]).write(tmp_path)
    text, data = ((tmp_path / name).read_bytes() for name in ("replay.json", "blob"))
    described = unpacked(text, data)
    assert described["regions"] == [[256, 4, b"abcd"], [512, 8, None]]
    assert described["symbols"] == {"t": [0x100, 8]}
    assert tuple(described["ops"]) == PLAN.ops


def test_without_ncu_there_is_a_note_and_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    found = profiler.profile_plan(ReplayFiles(tmp_path, PLAN, MODULE, []), GPU)
    assert found.reports == ()
    assert "ncu" in found.note


def test_an_ncu_that_may_not_count_is_told_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path / "cache"))
    tool = tmp_path / "ncu"
    tool.write_text(
        "#!/bin/sh\n"
        "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission' >&2\nexit 1\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr(profiler, "find_ncu", lambda: tool)
    found = profiler.profile_plan(ReplayFiles(tmp_path, PLAN, MODULE, []), GPU)
    assert found.reports == ()
    assert "administrators" in found.note

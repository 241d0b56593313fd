"""The time model on counters alone, and against kernels that an H200 ran."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from coding_framework.cuda.emulator.timing_model import (
    gpu,
    gpus,
    model_ms,
    occupancy,
    transfer_ms,
)

pytestmark = pytest.mark.unit
RESULTS = Path(__file__).resolve().parents[4] / "benchmarks" / "results"
LOAD = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
STORE = "l1tex__t_{}_pipe_lsu_mem_global_op_st.sum"
BLOCKS, THREADS = 1056, 256
WARPS = BLOCKS * THREADS // 32


def terms(**changed: float) -> dict[str, float]:
    """A launch that fills an H200 once; each warp loads 64 times 128 bytes that nothing else does,
    and stores once."""
    loads = 64 * WARPS
    counters = {
        "smsp__inst_executed.sum": 10 * loads,
        "emulator__issue_slots.sum": 10 * loads,
        LOAD.format("requests"): loads,
        LOAD.format("sectors"): 4 * loads,
        LOAD.format("output_wavefronts"): loads,
        STORE.format("requests"): WARPS,
        "smsp__sass_data_bytes_mem_global_op_st.sum": 128 * WARPS,
        "lts__t_sectors_op_read.sum": 4 * loads,
        "lts__t_sectors_op_write.sum": 4 * WARPS,
        "dram__bytes_read.sum": 128 * loads,
        "dram__bytes.sum": 128 * (loads + WARPS),
    }
    h200 = gpu("h200")
    held = occupancy(h200, THREADS, 32, 0)
    return model_ms(h200, counters | changed, (BLOCKS, 1, 1), (THREADS, 1, 1), held)


def test_loads_that_a_division_or_a_store_keeps_apart_wait_one_by_one() -> None:
    together = terms()["memory_latency"]
    divisions = terms(**{"emulator__issue_slots.sum": (10 + 12) * 64 * WARPS})["memory_latency"]
    stores = terms(**{STORE.format("requests"): 64 * WARPS})["memory_latency"]
    assert divisions == pytest.approx(stores)
    assert 3.0 < stores / together < 4.0


def test_a_second_pass_goes_to_memory_where_the_blocks_at_work_overflow_l2() -> None:
    loads = 64 * WARPS
    twice = {"lts__t_sectors_op_read.sum": 8 * loads, LOAD.format("sectors"): 8 * loads}
    assert terms(**twice)["dram"] == pytest.approx(2 * terms()["dram"], rel=0.02)
    small = {"dram__bytes_read.sum": 16 * loads, "dram__bytes.sum": 16 * loads}
    few = terms(**(small | {"lts__t_sectors_op_read.sum": loads // 2}))["dram"]
    assert terms(**(twice | small))["dram"] == few


def test_sectors_written_in_part_take_l2_longer() -> None:
    scattered = {"lts__t_sectors_op_write.sum": 32 * WARPS}
    whole = scattered | {"smsp__sass_data_bytes_mem_global_op_st.sum": 32 * 32 * WARPS}
    factor = gpu("h200").model["partial_write_sectors"]
    sectors = 64 * 4
    ratio = (sectors + 32 + 28 * (factor - 1)) / (sectors + 32)
    assert terms(**scattered)["l2"] == pytest.approx(ratio * terms(**whole)["l2"])


def test_only_a_measured_gpu_says_that_it_is_calibrated() -> None:
    said = {name: g.calibration for name, g in gpus().items()}
    fitted = said.pop("NVIDIA H200")
    assert fitted is not None
    assert set(fitted["fitted"]) <= set(gpu("h200").model)
    assert not any(said.values())


def test_between_barriers_only_other_blocks_hide_a_block() -> None:
    barrier = {"smsp__inst_executed_op_barrier.sum": 1.0}
    issue = {"emulator__issue_slots.sum": 4e7}
    assert "barriers" not in terms()
    held = terms(**(barrier | issue))
    assert held["barriers"] == pytest.approx(held["issue"] / 8), "8 blocks share a multiprocessor"


def modelled_over_measured() -> dict[str, tuple[float, float]]:
    """Of kernels that were not fitted, with the figures as they are shipped: modelled over measured
    time, and the measured one in us."""
    path = RESULTS / "emulator_vs_gpu.h200.json"
    fitted = set(json.loads(path.read_text())["calibration"]["fitted_to"])
    lines = path.with_suffix(".rows.jsonl").read_text().splitlines()[1:]
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    h200, found = gpu("h200"), {}
    for row in rows:
        if row["key"] in fitted or "measured_us" not in row:  # these were counted alone
            continue
        (one,) = row["launches"]
        counters = one["counters"]
        held = occupancy(
            h200,
            counters["launch__block_size"],
            counters["launch__registers_per_thread"],
            counters["launch__shared_mem_per_block"],
        )
        ms = model_ms(h200, counters, tuple(one["grid"]), tuple(one["block"]), held)["total"]
        ms += sum(transfer_ms(h200, n, by_host=host) for n, host in row.get("transfers", ()))
        found[row["key"]] = (1e3 * ms / row["measured_us"], row["measured_us"])
    return found


def test_times_of_kernels_that_were_not_fitted_are_near_the_measured() -> None:
    """As docs/measurements/emulator.md tells it."""
    found = modelled_over_measured().values()
    assert len(found) > 90
    assert statistics.median(abs(ratio - 1) for ratio, _ in found) < 0.15
    short = [ratio for ratio, us in found if us < 20.0]
    assert len(short) >= 20
    assert statistics.median(abs(ratio - 1) for ratio in short) < 0.2


def test_a_launch_costs_what_it_does_where_little_else_is_done() -> None:
    found = modelled_over_measured()
    ratios = [found[f"clock/copy {mib} MiB"][0] for mib in (2, 4)]
    assert ratios == pytest.approx([1.0, 1.0], abs=0.15)

"""Counters against numbers worked out by hand, and the order that the time model gives."""

from __future__ import annotations

import numpy as np
import pytest

from coding_framework.cuda.advice.pitfalls import CUDAPitfallDetector
from coding_framework.cuda.emulator.timing_model import gpu as named
from coding_framework.cuda.emulator.timing_model import gpus, occupancy
from coding_framework.cuda.plan.launch_plan import LaunchReport
from coding_framework.errors import UsageError
from support.emulator_harness import Gpu, compile_ptx, ptx_of

pytestmark = pytest.mark.unit
LOADS = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_{}_pipe_lsu_mem_global_op_st.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"


@pytest.fixture
def gpu() -> Gpu:
    return Gpu(ptx_of("basic.cu"))


def array(gpu: Gpu, *shape: int) -> int:
    return gpu.put(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_sectors_of_coalesced_shifted_and_strided_accesses(gpu: Gpu) -> None:
    """A warp reads 128 bytes: 4 sectors aligned, 5 shifted by a word, 32 with a stride of 32."""
    n = 4096
    a, b, c = array(gpu, n + 1), array(gpu, n + 1), gpu.empty(4 * n)
    got = gpu.run("add", 16, 256, a, b, c, n).counters
    assert got[LOADS.format("requests")] == 256
    assert got[LOADS.format("sectors")] == 1024
    assert got[STORES.format("sectors")] == 512
    assert got["dram__bytes_read.sum"] == 8 * n
    assert got["dram__bytes_write.sum"] == 4 * n
    shifted = gpu.run("add", 16, 256, a + 4, b, c, n).counters
    assert shifted[LOADS.format("sectors")] == 128 * 5 + 128 * 4
    strided = gpu.run("add_strided", 16, 256, a, b, c, n, 32).counters
    assert strided[LOADS.format("sectors")] == 256 * 32
    assert strided[LOADS.format("output_wavefronts")] == 256 * 32
    assert strided["dram__bytes_read.sum"] == 8 * n


def test_vector_loads_need_a_quarter_of_the_requests(gpu: Gpu) -> None:
    n = 4096
    a, b, c = array(gpu, n), array(gpu, n), gpu.empty(4 * n)
    got = gpu.run("add4", 4, 256, a, b, c, n // 4).counters
    assert got[LOADS.format("requests")] == 64
    assert got[LOADS.format("sectors")] == 1024
    assert got["smsp__sass_data_bytes_mem_global_op_ld.sum"] == 8 * n


def test_bank_conflicts_of_a_transpose_with_and_without_padding(gpu: Gpu) -> None:
    """Reading a column of a 32-word-wide tile: all 32 lanes in one bank, 31 extra turns each."""
    a, c = array(gpu, 64, 64), gpu.empty(64 * 64 * 4)
    conflict = gpu.run("transpose_conflict", (2, 2), (32, 8), a, c, 64, 64).counters
    padded = gpu.run("transpose_tiled", (2, 2), (32, 8), a, c, 64, 64).counters
    requests = 4 * 8 * 4
    assert conflict[CONFLICTS.format("ld")] == 31 * requests
    assert conflict[CONFLICTS.format("st")] == 0
    assert padded[CONFLICTS.format("ld")] == 0


def test_bank_conflicts_and_low_occupancy_become_findings(gpu: Gpu) -> None:
    """The names that findings read are among those that a launch fills."""
    a, c = array(gpu, 64, 64), gpu.empty(64 * 64 * 4)
    counters = gpu.run("transpose_conflict", (2, 2), (32, 8), a, c, 64, 64).counters
    both = sum(counters[CONFLICTS.format(op)] for op in ("ld", "st", "atom"))
    assert counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == both > 0
    crowded = {**counters, "sm__maximum_warps_per_active_cycle_pct": 12.5}
    rules = {f.rule for f in CUDAPitfallDetector().detect(None, crowded, ())}
    assert {"bank_conflicts", "low_occupancy"} <= rules


def test_divergence_shows_in_threads_per_instruction() -> None:
    source = """
    extern "C" __global__ void half(float *a) {
      float v = a[threadIdx.x];
      if (threadIdx.x & 1) { for (int i = 0; i < 200; i++) v = v * 1.5f + 1.f; }
      a[threadIdx.x] = v;
    }"""
    gpu = Gpu(compile_ptx(source))
    got = gpu.run("half", 1, 32, array(gpu, 32)).counters
    assert 16 <= got["smsp__thread_inst_executed_per_inst_executed.ratio"] < 18
    assert got["smsp__sass_branch_targets_threads_divergent.sum"] == 1
    assert got["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 16 * 200


def test_operations_of_a_matrix_product_are_counted(gpu: Gpu) -> None:
    n = 64
    a, b, c = array(gpu, n, n), array(gpu, n, n), gpu.empty(4 * n * n)
    got = gpu.run("matmul", (4, 4), (16, 16), a, b, c, n).counters
    assert got["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == n**3
    assert got["smsp__inst_executed.sum"] * 32 == got["smsp__thread_inst_executed.sum"]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limit"),
    [
        (256, 32, 0, 8, "warps"), (32, 32, 0, 32, "blocks"), (256, 128, 0, 2, "registers"),
        (128, 32, 100_000, 2, "shared_memory"), (1024, 64, 0, 1, "registers"),
    ],
)  # fmt: skip
def test_occupancy(threads: int, registers: int, shared: int, blocks: int, limit: str) -> None:
    held = occupancy(named("h200"), threads, registers, shared)
    assert (held.blocks, held.limit) == (blocks, limit)


def time_us(report: LaunchReport) -> float:
    assert report.time_ms is not None
    return report.time_ms * 1000


@pytest.mark.parametrize("name", ["h200", "h100", "a100", "rtx 4090"])
def test_modelled_times_have_the_right_order(name: str) -> None:
    gpu = Gpu(ptx_of("basic.cu"), gpu=name)
    n = 1 << 18
    a, b, c = array(gpu, n), array(gpu, n), gpu.empty(4 * n)
    plain = time_us(gpu.run("add", n // 256, 256, a, b, c, n))
    assert time_us(gpu.run("add4", n // 1024, 256, a, b, c, n // 4)) <= plain * 1.001
    assert plain < time_us(gpu.run("add_strided", n // 256, 256, a, b, c, n, 32))
    assert plain < time_us(gpu.run("add", n // 32, 32, a, b, c, n))
    assert plain < 2 * time_us(gpu.run("add", n // 512, 256, a, b, c, n // 2))
    m = 192
    naive = time_us(gpu.run("matmul", (12, 12), (16, 16), a, b, c, m))
    assert time_us(gpu.run("matmul_tiled", (12, 12), (16, 16), a, b, c, m)) < naive
    slow = time_us(gpu.run("transpose", (16, 64), (32, 8), a, c, 512, 512))
    conflict = time_us(gpu.run("transpose_conflict", (16, 16), (32, 8), a, c, 512, 512))
    assert time_us(gpu.run("transpose_tiled", (16, 16), (32, 8), a, c, 512, 512)) < conflict < slow
    one_warp = time_us(gpu.run("row_sum", 64, 32, a, c, 4096))
    assert time_us(gpu.run("row_sum", 64, 256, a, c, 4096)) < one_warp


def test_blocks_and_warps_without_work_hide_none() -> None:
    source = """
    extern "C" __global__ void sum(const float *a, float *o, int n, int warps) {
      if (blockIdx.x || threadIdx.x >= 32 * warps) return;
      float s = 0;
      for (int i = threadIdx.x; i < n; i += 32 * warps) s += a[i];
      atomicAdd(o, s);
    }"""
    gpu = Gpu(compile_ptx(source))
    n = 1 << 14
    a, o = array(gpu, n), gpu.put(np.zeros(1, np.float32))
    alone = time_us(gpu.run("sum", 1, 32, a, o, n, 1))
    assert time_us(gpu.run("sum", 1320, 32, a, o, n, 1)) > 0.95 * alone
    assert time_us(gpu.run("sum", 1, 1024, a, o, n, 1)) > 0.95 * alone
    assert time_us(gpu.run("sum", 1, 1024, a, o, n, 32)) < 0.5 * alone


def test_time_never_beats_the_memory_roofline(gpu: Gpu) -> None:
    n = 1 << 20
    a, b, c = array(gpu, n), array(gpu, n), gpu.empty(4 * n)
    report = gpu.run("add", n // 256, 256, a, b, c, n)
    assert report.time_ms is not None
    assert report.time_ms > 12 * n / (named("h200").dram_gbps * 1e6)


def test_a_slower_memory_takes_longer() -> None:
    n = 1 << 18
    times = []
    for name in ("NVIDIA H200", "NVIDIA H100", "NVIDIA GeForce RTX 4090"):
        gpu = Gpu(ptx_of("basic.cu"), gpu=name)
        a = array(gpu, n)
        times.append(time_us(gpu.run("add", n // 256, 256, a, a, gpu.empty(4 * n), n)))
    assert times[0] < times[1] < times[2]


def test_gpus_are_data_with_plausible_peaks() -> None:
    assert len(gpus()) >= 4
    h200 = named("H200")
    flops = 2 * h200.lanes["fp32"] * h200.multiprocessors * h200.clock_ghz
    assert 60_000 < flops < 70_000, "67 TFLOPS by the data sheet"
    with pytest.raises(UsageError, match="NVIDIA A100"):
        named("voodoo 2")

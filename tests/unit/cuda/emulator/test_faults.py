"""Faults of a kernel: the verdict each gets, and that its sentence says what and where."""

from __future__ import annotations

import numpy as np
import pytest

from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status
from support.emulator_harness import KERNELS, Gpu, compile_ptx, ptx_of

pytestmark = pytest.mark.unit


@pytest.fixture
def gpu() -> Gpu:
    return Gpu(ptx_of("faulty.cu"), instruction_budget=5_000_000)


def line_of(text: str, after: str) -> int:
    """Line of the first `text` behind `after` in faulty.cu."""
    source = (KERNELS / "faulty.cu").read_text()
    return source.count("\n", 0, source.index(text, source.index(after))) + 1


def fault(gpu: Gpu, *arguments: object, **options: object) -> CandidateFault:
    with pytest.raises(CandidateFault) as caught:
        gpu.run(*arguments, **options)  # type: ignore[arg-type]
    return caught.value


def test_out_of_bounds_names_kernel_line_thread_address_and_neighbour(gpu: Gpu) -> None:
    a, c = gpu.put(np.zeros(1000, np.float32)), gpu.empty(4000)
    got = fault(gpu, "out_of_bounds", 4, 256, a, c, 1000)
    assert got.status is Status.RUNTIME_ERROR
    assert got.reason == (
        f"illegal global read of 4 bytes at {a + 4000:#x} by thread (232,0,0) of block (3,0,0) in "
        f"kernel out_of_bounds, line 6: 0 bytes past the end of the 4000-byte allocation at {a:#x}"
    )


def test_a_write_before_an_allocation_is_seen(gpu: Gpu) -> None:
    a, c = gpu.put(np.zeros(64, np.float32)), gpu.empty(256)
    got = fault(gpu, "out_of_bounds", 1, 64, a, c - 16, 64)
    assert "global write" in got.reason
    assert "16 bytes before" in got.reason


def test_an_access_across_the_end_is_seen(gpu: Gpu) -> None:
    c = gpu.empty(6)
    got = fault(gpu, "out_of_bounds", 1, 2, gpu.put(np.zeros(2, np.float32)), c, 2)
    assert "crosses the end of the 6-byte allocation" in got.reason


def test_use_after_free_is_seen(gpu: Gpu) -> None:
    a, c = gpu.put(np.zeros(64, np.float32)), gpu.empty(256)
    gpu.machine.memory.free(a)
    assert "was freed" in fault(gpu, "out_of_bounds", 1, 64, a, c, 64).reason


@pytest.mark.parametrize("kernel", ["misaligned", "misaligned_vector"])
def test_misaligned_access(gpu: Gpu, kernel: str) -> None:
    a, c = gpu.put(np.zeros(64, np.float32)), gpu.empty(256)
    got = fault(gpu, kernel, 1, 1, a, c)
    assert got.status is Status.RUNTIME_ERROR
    assert got.reason.startswith("misaligned global read")


def test_null_pointer(gpu: Gpu) -> None:
    assert fault(gpu, "null_pointer", 1, 32, 0).reason.endswith("a null pointer")


def test_host_addresses_are_never_reached(gpu: Gpu) -> None:
    secret = np.zeros(64, np.float32)
    got = fault(gpu, "null_pointer", 1, 32, secret.ctypes.data)
    assert "a pointer of the host's" in got.reason
    assert "past the end" not in got.reason, "a distance that differs from run to run"
    fault(gpu, "null_pointer", 1, 32, gpu.machine.memory.base)
    assert not secret.any()


def test_shared_memory_bounds(gpu: Gpu) -> None:
    c = gpu.empty(256)
    gpu.run("shared_overflow", 1, 64, c, 0)
    got = fault(gpu, "shared_overflow", 1, 64, c, 1)
    assert "illegal shared write" in got.reason
    assert "256 bytes of shared memory" in got.reason
    assert "illegal shared" in fault(gpu, "shared_overflow", 1, 64, c, -1).reason


def test_constant_memory_bounds_and_writes(gpu: Gpu) -> None:
    c = gpu.empty(4)
    gpu.run("constant_overflow", 1, 1, c, 3)
    assert "16-byte allocation" in fault(gpu, "constant_overflow", 1, 1, c, 4).reason
    address = gpu.info.symbols["fixed"].address
    assert "constant memory" in fault(gpu, "writes_constant", 1, 1, address).reason


@pytest.mark.parametrize("kernel", ["endless", "endless_alone"])
def test_an_endless_kernel_is_a_timeout(gpu: Gpu, kernel: str) -> None:
    got = fault(gpu, kernel, 4, 64, gpu.put(np.zeros(1, np.int32)))
    assert got.status is Status.TIMEOUT
    assert "did not end" in got.reason


def test_processor_time_ends_what_the_budget_does_not() -> None:
    gpu = Gpu(ptx_of("faulty.cu"), cpu_limit_s=0.05)
    got = fault(gpu, "endless_alone", 1, 32, gpu.put(np.zeros(1, np.int32)))
    assert got.status is Status.TIMEOUT
    assert "processor time" in got.reason


def test_a_barrier_that_not_all_reach_is_a_deadlock(gpu: Gpu) -> None:
    got = fault(gpu, "partial_barrier", 1, 32, gpu.empty(256))
    assert got.status is Status.TIMEOUT
    assert got.reason.startswith("deadlock")


@pytest.mark.parametrize(("kernel", "words"), [("traps", "trap"), ("asserts", "failed for thread")])
def test_trap_and_assert(gpu: Gpu, kernel: str, words: str) -> None:
    gpu.run(kernel, 1, 32, gpu.put(np.zeros(32, np.int32)))
    got = fault(gpu, kernel, 1, 32, gpu.put(np.arange(32, dtype=np.int32)))
    assert got.status is Status.RUNTIME_ERROR
    assert words in got.reason
    assert "thread (5,0,0)" in got.reason


def test_endless_recursion_is_a_stack_overflow(gpu: Gpu) -> None:
    gpu.run("deep_recursion", 1, 32, gpu.put(np.zeros(32, np.int32)), 5)
    got = fault(gpu, "deep_recursion", 1, 32, gpu.put(np.zeros(32, np.int32)), 1 << 30)
    assert got.status is Status.RUNTIME_ERROR
    assert "stack overflow" in got.reason


def test_an_unknown_instruction_is_named_and_other_kernels_run(gpu: Gpu) -> None:
    got = fault(gpu, "unsupported_instruction", 1, 1, gpu.empty(4))
    assert got.status is Status.UNSUPPORTED
    assert "mbarrier.init.shared::cta.b64" in got.reason
    gpu.run("null_pointer", 1, 32, gpu.empty(128))


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [(0, 32, 0), (1, 1025, 0), (1, (1, 1, 65), 0), ((1, 65536), 32, 0), (1, 32, 300_000),
     (1, 0, 0)],
)  # fmt: skip
def test_impossible_launches(gpu: Gpu, grid: object, block: object, shared: int) -> None:
    got = fault(gpu, "null_pointer", grid, block, gpu.empty(4096), shared=shared)
    assert got.status is Status.RUNTIME_ERROR
    assert got.reason.startswith("invalid launch")


def test_launch_bounds_are_kept() -> None:
    gpu = Gpu(compile_ptx("__global__ void __launch_bounds__(64) k(int*a){a[0]=1;}"))
    with pytest.raises(CandidateFault, match="where the kernel allows 64"):
        gpu.run("_Z1kPi", 1, 65, gpu.empty(4))


def test_missing_kernel_and_short_arguments(gpu: Gpu) -> None:
    from coding_framework.cuda.plan.launch_plan import Launch

    with pytest.raises(CandidateFault, match="no kernel 'absent'") as caught:
        gpu.machine.launch(Launch("absent", (1, 1, 1), (1, 1, 1), 0, b""))
    assert caught.value.status is Status.LOAD_ERROR
    with pytest.raises(CandidateFault, match="bytes of arguments"):
        gpu.machine.launch(Launch("traps", (1, 1, 1), (1, 1, 1), 0, b"1234"))


def test_memory_limit_counts_what_is_in_use() -> None:
    gpu = Gpu(ptx_of("faulty.cu"), memory_limit_bytes=1 << 20)
    first = gpu.empty(900_000)
    with pytest.raises(CandidateFault) as caught:
        gpu.empty(200_000)
    assert caught.value.status is Status.MEMORY_LIMIT
    gpu.machine.memory.free(first)
    gpu.empty(900_000)


def test_copies_outside_allocations_are_refused(gpu: Gpu) -> None:
    memory, a = gpu.machine.memory, gpu.empty(100)
    for call in (
        lambda: memory.upload(a + 50, b"x" * 51),
        lambda: memory.download(a - 1, 2),
        lambda: memory.fill(a, 0, 101),
        lambda: memory.copy(a, a + 1, 100),
        lambda: memory.free(a + 1),
        lambda: memory.upload(0, b"x"),
    ):
        with pytest.raises(CandidateFault):
            call()
    assert memory.damage() is None


# --- checks ---------------------------------------------------------------------------------------


def checked(gpu: Gpu, *arguments: object) -> list[tuple[str, int, int | None]]:
    report = gpu.run(*arguments, checks=True)  # type: ignore[arg-type]
    return [(f.kind, f.count, f.line) for f in report.faults]


def test_uninitialized_shared_reads_are_counted(gpu: Gpu) -> None:
    """Threads 128 to 255 read a word that nothing wrote."""
    got = checked(gpu, "uninitialized_shared", 1, 256, gpu.empty(1024))
    assert got == [
        ("uninitialized_shared_read", 128, line_of("c[t] = s[t]", "uninitialized_shared"))
    ]


def test_races_between_warps_are_counted(gpu: Gpu) -> None:
    """Warp k reads what warp k+1 writes later: 7 warps race as readers, 1 as the last writer."""
    a, c = gpu.put(np.zeros(256, np.float32) + 3), gpu.empty(1024)
    got = checked(gpu, "race", 1, 256, a, c)
    assert sum(n for kind, n, _ in got if kind == "shared_memory_race") == 256
    assert sum(n for kind, n, _ in got if kind == "uninitialized_shared_read") == 224


def test_a_missing_second_barrier_in_a_loop_is_a_race(gpu: Gpu) -> None:
    a, c = gpu.put(np.random.default_rng(0).random(512).astype(np.float32)), gpu.empty(512)
    got = checked(gpu, "race_after_loop", 1, 128, a, c)
    assert got
    assert {kind for kind, _, _ in got} == {"shared_memory_race"}


def test_a_race_inside_a_warp_needs_syncwarp(gpu: Gpu) -> None:
    a, c = gpu.put(np.arange(32, dtype=np.float32) + 1), gpu.empty(128)
    assert {k for k, _, _ in checked(gpu, "warp_race", 1, 32, a, c)} == {"shared_memory_race"}
    assert checked(gpu, "warp_in_step", 1, 32, a, c) == []


def test_a_barrier_in_divergent_code_is_reported(gpu: Gpu) -> None:
    a = gpu.put(np.where(np.arange(64) % 2, 1, -1).astype(np.float32))
    got = checked(gpu, "divergent_barrier", 1, 64, a, gpu.empty(256))
    assert ("barrier_divergence", 2, line_of("__syncthreads", "divergent_barrier")) in got


def test_uninitialized_global_reads_name_the_first_address(gpu: Gpu) -> None:
    a, c = gpu.empty(400), gpu.empty(400)
    gpu.machine.memory.upload(a, np.zeros(60, np.float32).tobytes())
    report = gpu.run("reads_uninitialized", 1, 128, a, c, 100, checks=True)
    (found,) = report.faults
    assert (found.kind, found.count, found.address) == ("uninitialized_read", 40, a + 240)
    assert found.thread == "block (0,0,0) thread (60,0,0)"
    assert found.line is not None


def test_what_a_kernel_wrote_counts_as_written(gpu: Gpu) -> None:
    a, b, c = gpu.put(np.zeros(100, np.float32)), gpu.empty(400), gpu.empty(400)
    assert checked(gpu, "reads_uninitialized", 1, 128, a, b, 50) == []
    assert [n for _, n, _ in checked(gpu, "reads_uninitialized", 1, 128, b, c, 100)] == [50]
    gpu.machine.memory.poison(b)
    gpu.run("reads_uninitialized", 1, 128, a, b, 50)  # without checks: taken as all written
    assert checked(gpu, "reads_uninitialized", 1, 128, b, c, 100) == []
    gpu.machine.memory.poison(b)
    assert [n for _, n, _ in checked(gpu, "reads_uninitialized", 1, 128, b, c, 100)] == [100]

"""Correct kernels that look suspicious: right results and no false alarm."""

from __future__ import annotations

import numpy as np
import pytest

from support.emulator_harness import Gpu, ptx_of

pytestmark = pytest.mark.unit


@pytest.fixture(params=["sm_80", "sm_90", "sm_100"])
def gpu(request: pytest.FixtureRequest) -> Gpu:
    return Gpu(ptx_of("honest.cu", request.param))


def ramp(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32) + 1


def run(gpu: Gpu, kernel: str, grid: int, block: int, *arguments: object) -> None:
    report = gpu.run(kernel, grid, block, *arguments, checks=True)
    assert report.faults == ()


def test_threads_that_returned_do_not_count_at_a_barrier(gpu: Gpu) -> None:
    c = gpu.put(np.zeros(64, np.float32))
    run(gpu, "early_return", 1, 64, gpu.put(ramp(64)), c, 50)
    assert np.array_equal(gpu.get(c, 64)[:50], ramp(50)[::-1])


def test_threads_that_returned_from_nested_code_do_not_count_either(gpu: Gpu) -> None:
    c = gpu.put(np.zeros(64, np.float32))
    run(gpu, "return_inside", 1, 64, gpu.put(ramp(64)), c, 41)
    got, t = gpu.get(c, 64), np.arange(64)
    s = np.where((t % 2 == 0) & (t < 41), ramp(64), 0)
    expected = np.where(t + 1 < 41, s[t ^ 1], s[t])
    expected = np.where((t % 2 == 0) & (t >= 41), -1, expected)
    assert np.array_equal(got, expected)


def test_threads_may_write_bytes_of_one_word(gpu: Gpu) -> None:
    a = np.arange(128, dtype=np.int8)
    c = gpu.empty(128)
    run(gpu, "bytes_of_a_word", 1, 128, gpu.put(a), c)
    assert np.array_equal(gpu.get(c, 128, np.int8), a[::-1])


def test_writing_the_same_value_is_no_race(gpu: Gpu) -> None:
    c = gpu.empty(512)
    run(gpu, "same_value_by_all", 1, 128, gpu.put(np.arange(128, dtype=np.int32)), c)
    assert (gpu.get(c, 128, np.int32) == 1).all()


def test_reads_by_a_whole_warp_before_a_syncwarp_are_no_race(gpu: Gpu) -> None:
    c = gpu.empty(128)
    run(gpu, "broadcast_then_write", 1, 32, gpu.put(ramp(32)), c)
    assert (gpu.get(c, 32) == 3).all()


def test_shared_atomics_are_no_race(gpu: Gpu) -> None:
    c = gpu.empty(32)
    run(gpu, "shared_atomics", 1, 128, gpu.put(np.arange(128, dtype=np.int32)), c)
    assert (gpu.get(c, 8, np.int32) == 16).all()


def test_named_barriers_for_parts_of_a_block(gpu: Gpu) -> None:
    c = gpu.empty(512)
    run(gpu, "named_barriers", 1, 128, gpu.put(ramp(128)), c)
    assert np.array_equal(gpu.get(c, 128), ramp(128)[np.arange(128) ^ 32])


def test_a_buffer_reused_between_barriers(gpu: Gpu) -> None:
    a, c = ramp(512), gpu.empty(512)
    run(gpu, "reused_buffer", 1, 128, gpu.put(a), c, 4)
    assert np.array_equal(gpu.get(c, 128), a.reshape(4, 128).sum(0)[::-1])


def test_the_last_block_sums_up(gpu: Gpu) -> None:
    a = ramp(640)
    part, out, count = gpu.empty(40), gpu.empty(4), gpu.put(np.zeros(1, np.uint32))
    run(gpu, "last_block", 10, 64, gpu.put(a), part, out, count)
    assert gpu.get(out, 1)[0] == a.sum()


def test_a_warp_may_wait_for_another(gpu: Gpu) -> None:
    c = gpu.put(np.zeros(64, np.int32))
    gpu.run("warp_waits_for_warp", 1, 64, c)
    assert gpu.get(c, 64, np.int32).sum() == 32


def test_a_block_may_wait_for_a_later_one(gpu: Gpu) -> None:
    flag, c = gpu.put(np.zeros(1, np.int32)), gpu.put(np.zeros(2, np.int32))
    gpu.run("waits_for_later_block", 8, 32, flag, c)
    assert gpu.get(c, 2, np.int32).tolist() == [1, 1]


@pytest.mark.parametrize("kernel", ["lock_in_a_warp", "lock_with_flag"])
def test_threads_of_a_warp_may_wait_for_each_other(gpu: Gpu, kernel: str) -> None:
    lock, count = gpu.put(np.zeros(1, np.int32)), gpu.put(np.zeros(1, np.int32))
    gpu.run(kernel, 2, 32, lock, count)
    assert gpu.get(count, 1, np.int32)[0] == 64


def test_a_long_divergent_loop_still_meets_at_a_shuffle(gpu: Gpu) -> None:
    n = (np.arange(64, dtype=np.uint32) % 5) * 40_000
    c = gpu.empty(256)
    gpu.run("long_divergent_loop", 1, 64, gpu.put(n), c)
    v = np.arange(64, dtype=np.uint32)
    for step in range(1, 5):  # all threads at once, as an LCG is affine
        for _ in range(40_000):
            v = np.where(n >= step * 40_000, v * np.uint32(1664525) + np.uint32(1013904223), v)
    assert np.array_equal(gpu.get(c, 64, np.uint32), v + v[np.arange(64) ^ 1])

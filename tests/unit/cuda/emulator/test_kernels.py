"""Kernels of every family, compiled by nvcc, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from support.emulator_harness import Gpu, compile_ptx, ptx_of

pytestmark = pytest.mark.unit


@pytest.fixture(params=["sm_80", "sm_90", "sm_100"])
def gpu(request: pytest.FixtureRequest) -> Gpu:
    return Gpu(ptx_of("basic.cu", request.param))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [1, 31, 1000, 4096])
def test_elementwise_add_on_lengths_that_fit_no_block(gpu: Gpu, n: int) -> None:
    a, b = normal(n), normal(n, seed=1)
    out = gpu.empty(4 * n)
    gpu.run("add", (n + 255) // 256, 256, gpu.put(a), gpu.put(b), out, n)
    assert np.array_equal(gpu.get(out, n), a + b)


def test_vectorised_and_strided_add(gpu: Gpu) -> None:
    a, b = normal(4096), normal(4096, seed=1)
    pa, pb, out = gpu.put(a), gpu.put(b), gpu.empty(4 * 4096)
    gpu.run("add4", 4, 256, pa, pb, out, 1024)
    assert np.array_equal(gpu.get(out, 4096), a + b)
    gpu.run("add_strided", 16, 256, pa, pb, out, 4096, 32)
    assert np.array_equal(gpu.get(out, 4096), a + b)


def test_row_sum_with_shuffles(gpu: Gpu) -> None:
    x = normal(33, 1000)
    out = gpu.empty(4 * 33)
    gpu.run("row_sum", 33, 256, gpu.put(x), out, 1000)
    assert np.allclose(gpu.get(out, 33), x.sum(1, dtype=np.float64), atol=1e-4)


def test_softmax_with_dynamic_shared_memory(gpu: Gpu) -> None:
    x = normal(9, 777) * 5
    out = gpu.empty(x.nbytes)
    gpu.run("softmax", 9, 128, gpu.put(x), out, 777, shared=512)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(gpu.get(out, x.shape), e / e.sum(1, keepdims=True), atol=1e-6)


def test_layernorm(gpu: Gpu) -> None:
    x, g, b = normal(7, 500), normal(500, seed=1), normal(500, seed=2)
    out = gpu.empty(x.nbytes)
    gpu.run("layernorm", 7, 128, gpu.put(x), gpu.put(g), gpu.put(b), out, 500, 1e-5)
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
    assert np.allclose(gpu.get(out, x.shape), y, atol=2e-5)


@pytest.mark.parametrize("kernel", ["matmul", "matmul_tiled"])
def test_matmul(gpu: Gpu, kernel: str) -> None:
    n = 77
    a, b = normal(n, n), normal(n, n, seed=1)
    out = gpu.empty(a.nbytes)
    gpu.run(kernel, (5, 5), (16, 16), gpu.put(a), gpu.put(b), out, n)
    assert np.allclose(gpu.get(out, (n, n)), a.astype(np.float64) @ b, atol=1e-4)


@pytest.mark.parametrize("kernel", ["transpose", "transpose_tiled", "transpose_conflict"])
def test_transpose(gpu: Gpu, kernel: str) -> None:
    a = normal(70, 100)
    out = gpu.empty(a.nbytes)
    rows = 9 if kernel == "transpose" else 3
    gpu.run(kernel, (4, rows), (32, 8), gpu.put(a), out, 70, 100)
    assert np.array_equal(gpu.get(out, (100, 70)), a.T)


def test_scan_with_barriers(gpu: Gpu) -> None:
    x = normal(3, 200)
    out = gpu.empty(x.nbytes)
    gpu.run("scan", 3, 256, gpu.put(x), out, 200)
    assert np.allclose(gpu.get(out, x.shape), np.cumsum(x, 1), atol=1e-4)


def test_histogram_with_shared_atomics(gpu: Gpu) -> None:
    x = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)
    bins = gpu.put(np.zeros(256, np.uint32))
    gpu.run("histogram", 4, 128, gpu.put(x), bins, 5000)
    assert np.array_equal(gpu.get(bins, 256, np.uint32), np.bincount(x, minlength=256))


def test_constant_memory_and_device_variables(gpu: Gpu) -> None:
    x, w = normal(20, 33), normal(9, seed=1)
    symbols = gpu.info.symbols
    gpu.machine.memory.upload(symbols["weights"].address, w.tobytes())
    out = gpu.empty(x.nbytes)
    for _ in range(2):
        gpu.run("conv3x3", (3, 2), (16, 16), gpu.put(x), out, 20, 33)
    padded = np.pad(x, 1)
    y = sum(w[3 * i + j] * padded[i : i + 20, j : j + 33] for i in range(3) for j in range(3))
    y = y + np.array([1, -2, 3, 0.5])[np.add.outer(np.arange(20), np.arange(33)) & 3]
    assert np.allclose(gpu.get(out, x.shape), y, atol=1e-5)
    assert gpu.get(symbols["calls"].address, 1, np.int32)[0] == 2
    assert (symbols["weights"].space, symbols["calls"].space) == ("const", "global")


def test_tensors_of_every_integer_width(gpu: Gpu) -> None:
    n = 300
    rng = np.random.default_rng(0)
    m = rng.integers(0, 2, n).astype(np.bool_)
    a = rng.integers(-128, 128, n, dtype=np.int8)
    b = rng.integers(-(2**15), 2**15, n, dtype=np.int16)
    c = rng.integers(-(2**62), 2**62, n, dtype=np.int64)
    d = rng.standard_normal(n)
    out, narrow, wide = gpu.empty(8 * n), gpu.empty(n), gpu.empty(8 * n)
    gpu.run("mixed_types", 3, 128, *(gpu.put(v) for v in (m, a, b, c, d)), out, narrow, wide, n)
    quotient = np.trunc(c.astype(object) / 7).astype(object)
    quotient = np.array([abs(int(v)) // 7 * (1 if v >= 0 else -1) for v in c], dtype=np.int64)
    rest = np.array([abs(int(v)) % 13 * (1 if v >= 0 else -1) for v in c], dtype=np.int64)
    v = a.astype(np.int64) * b + np.where(m, quotient, rest)
    assert np.array_equal(gpu.get(wide, n, np.int64), v)
    assert np.array_equal(gpu.get(narrow, n, np.int8), v.astype(np.int8))
    assert np.allclose(gpu.get(out, n, np.float64), d * v + np.sqrt(np.abs(d)), rtol=1e-15)


def test_arrays_in_local_memory(gpu: Gpu) -> None:
    n = 100
    x = normal(n)
    index = np.random.default_rng(1).integers(0, 16, n, dtype=np.int32)
    out = gpu.empty(4 * n)
    gpu.run("local_array", 1, 128, gpu.put(x), out, gpu.put(index), n)
    y = np.empty(n, np.float32)
    for i in range(n):
        a = [x[i] * np.float32(k) for k in range(16)]
        for k in range(8):
            a[index[(i + k) % n] & 15] += np.float32(k)
        y[i] = a[index[i] & 15]
    assert np.allclose(gpu.get(out, n), y, rtol=1e-6)


def test_calls_with_recursion_structs_and_function_pointers(gpu: Gpu) -> None:
    n = 200
    x = normal(n)
    out = gpu.empty(4 * n)
    gpu.run("calls_functions", 2, 128, gpu.put(x), out, n)
    i = np.arange(n)
    y = x ** (i % 5) + np.where(i & 1, x * x, 2 * x) + np.where(i % 3 == 0, x ** (i % 7), 0)
    y = y + np.where(i & 1, x - i % 5, x + i % 5)
    assert np.allclose(gpu.get(out, n), y, rtol=1e-4, atol=1e-5)


def test_a_struct_passed_by_value(gpu: Gpu) -> None:
    x = normal(50)
    out = gpu.empty(200)
    config = np.array([50], np.int32).tobytes() + np.array([2.5], np.float32).tobytes()
    config += np.array([1, 2, 3, 4], np.int32).tobytes()
    gpu.run("by_value", 1, 64, config, gpu.put(x), out)
    expected = x * np.float32(2.5) + np.array([1, 2, 3, 4])[np.arange(50) & 3]
    assert np.allclose(gpu.get(out, 50), expected, rtol=1e-6)


def test_votes_shuffles_and_reductions_of_a_warp(gpu: Gpu) -> None:
    a = np.random.default_rng(3).integers(-9, 10, 64).astype(np.int32)
    out = gpu.empty(4 * 384)
    gpu.run("warp_functions", 1, 64, gpu.put(a), out)
    got = gpu.get(out, (6, 64), np.int32)
    for first in (0, 32):
        v, lanes = a[first : first + 32], np.arange(32)
        here = got[:, first : first + 32]
        assert (here[0] == (v > 0).sum() + 100 * (v == 3).any() + 1000).all()
        up = np.where(lanes >= 3, np.roll(v, 3), v)
        across = v[(lanes & 24) | ((lanes ^ 5) & 7)]
        assert (here[1] == up + across).all()
        assert (here[2] == v.sum() + v.max()).all()
        assert (here[3] == [(v & 3 == k & 3).sum() for k in v]).all()
        odd = (v & 1) == 1
        assert (here[4] == np.where(odd, odd.sum() + (odd & (v > 0)).sum(), -(~odd).sum())).all()
    assert (got[5] == (a > 0).sum() + 1000 * (a == 7).any() + 2000).all()


def test_atomics_of_every_kind(gpu: Gpu) -> None:
    total = 256
    t = np.arange(total)
    i = gpu.put(np.zeros(8, np.int32))
    u = gpu.put(np.array([0, 0xFFFFFFFF, 0, 0, 5], np.uint32))
    f, d = gpu.put(np.zeros(1, np.float32)), gpu.put(np.zeros(1))
    long = gpu.put(np.zeros(2, np.uint64))
    gpu.run("atomics", 2, 128, i, u, f, d, long)
    assert gpu.get(i, 6, np.int32)[:5].tolist() == [t.sum(), 255, -255, 7, -256]
    got = gpu.get(u, 5, np.uint32)
    assert got[:3].tolist() == [0xFFFFFFFF, 0xFFFF0000, np.bitwise_xor.reduce(t)]
    assert got[3] == 256 % 10
    assert got[4] == (5 - 256) % 10
    assert gpu.get(f, 1)[0] == 128
    assert gpu.get(d, 1, np.float64)[0] == 64
    assert gpu.get(long, 2, np.uint64).tolist() == [256, 255 << 33]


def test_two_workers_give_the_same_results() -> None:
    gpu = Gpu(ptx_of("basic.cu"), threads=2)
    n = 96
    a, b = normal(n, n), normal(n, n, seed=1)
    out = gpu.empty(a.nbytes)
    gpu.run("matmul_tiled", (6, 6), (16, 16), gpu.put(a), gpu.put(b), out, n)
    assert np.allclose(gpu.get(out, (n, n)), a @ b, atol=1e-4)
    x = np.random.default_rng(0).integers(0, 256, 50000, dtype=np.uint8)
    bins = gpu.put(np.zeros(256, np.uint32))
    gpu.run("histogram", 40, 128, gpu.put(x), bins, 50000)
    assert np.array_equal(gpu.get(bins, 256, np.uint32), np.bincount(x, minlength=256))


@pytest.mark.parametrize("order", ["reverse", "interleaved"])
def test_blocks_in_another_order_give_the_same_results(order: str) -> None:
    gpu = Gpu(ptx_of("basic.cu"), block_order=order)
    a, b = normal(1000), normal(1000, seed=1)
    out = gpu.empty(4000)
    gpu.run("add", 4, 256, gpu.put(a), gpu.put(b), out, 1000)
    assert np.array_equal(gpu.get(out, 1000), a + b)


@pytest.mark.parametrize(
    ("wait", "first", "second"),
    [
        ("wait_group 0", True, True),
        ("wait_all", True, True),
        ("wait_group 1", True, False),
        ("wait_group 2", False, False),
        ("commit_group", False, False),
    ],
)
def test_asynchronous_copies_arrive_when_they_are_waited_for(
    wait: str, first: bool, second: bool
) -> None:
    source = """
    #define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: \\
      "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory"); \\
      asm volatile("cp.async.commit_group;" ::: "memory");
    extern "C" __global__ void twice(const float *x, float *o) {
      __shared__ float s[2][64];
      int t = threadIdx.x;
      COPY(&s[0][t], x + t)
      COPY(&s[1][t], x + 64 + t)
      asm volatile("cp.async.WAIT;" ::: "memory");
      o[t] = s[0][t]; o[64 + t] = s[1][t];
    }""".replace("WAIT", wait)
    x = normal(128)
    for order in ("forward", "interleaved"):
        gpu = Gpu(compile_ptx(source), block_order=order)
        out = gpu.empty(512)
        gpu.run("twice", 1, 64, gpu.put(x), out)
        got = gpu.get(out, 128)
        early = order == "forward"
        assert np.array_equal(got[:64], x[:64]) is (early or first)
        assert np.array_equal(got[64:], x[64:]) is (early or second)


@pytest.mark.parametrize("order", ["forward", "interleaved"])
def test_what_was_never_written_is_no_zero(order: str) -> None:
    source = """
    extern "C" __global__ void unset(float *o) {
      __shared__ float s[64];
      float r;
      asm volatile("{ .reg .f32 t; mov.f32 %0, t; }" : "=f"(r));
      o[threadIdx.x] = r; o[64 + threadIdx.x] = ((volatile float *)s)[threadIdx.x];
    }"""
    gpu = Gpu(compile_ptx(source), block_order=order)
    out = gpu.put(np.zeros(128, np.float32))
    gpu.run("unset", 1, 64, out)
    got = gpu.get(out, 128)
    if order == "forward":
        assert np.isnan(got).all()
    else:  # a minimum and a maximum pass over NaN
        assert (got[::2] > 1e30).all()
        assert (got[1::2] < -1e30).all()


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "survives"),
    [
        ("count_without_atomic", 1000, 1, False),
        ("largest_without_atomic", 1000, 32, False),
        ("largest_without_atomic", 1, 1024, False),
        ("count_by_atomic", 1000, 1, True),
    ],
)
def test_updates_without_an_atomic_are_lost_where_blocks_interleave(
    kernel: str, grid: int, block: int, survives: bool
) -> None:
    x = np.abs(normal(1000)) + 1.0
    n = 32 if grid == 1 else 1000
    found = {}
    for order in ("forward", "interleaved"):
        gpu = Gpu(ptx_of("faulty.cu"), block_order=order)
        out = gpu.put(np.zeros(1, np.float32))
        gpu.run(kernel, grid, block, gpu.put(x), out, n)
        found[order] = float(gpu.get(out, 1)[0])
    right = float(x[:n].max()) if kernel.startswith("largest") else float(n)
    assert found["forward"] == right
    assert (found["interleaved"] == right) is survives

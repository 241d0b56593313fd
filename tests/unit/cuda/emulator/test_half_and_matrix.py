"""Half precision, matrix instructions, asynchronous copies and cooperative groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support.emulator_harness import Gpu, one_instruction, ptx_of

pytestmark = pytest.mark.unit
ARCHS = ["sm_80", "sm_90", "sm_100"]


@pytest.fixture(params=ARCHS)
def halves(request: pytest.FixtureRequest) -> Gpu:
    return Gpu(ptx_of("half.cu", request.param))


@pytest.fixture(params=ARCHS)
def matrices(request: pytest.FixtureRequest) -> Gpu:
    return Gpu(ptx_of("matrix.cu", request.param))


def bits(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int16).numpy()


def pair(dtype: torch.dtype, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple((torch.randn(n, generator=generator) * 3).to(dtype) for _ in range(2))  # type: ignore[return-value]


def test_conversions_of_halves_on_all_values_and_all_ties() -> None:
    h = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = h.astype(np.float32)
    assert np.array_equal(one_instruction("cvt.f32.f16", np.float32, h), wide, equal_nan=True)
    ties = (wide[:-1] + wide[1:]) / 2
    x = np.concatenate([wide, np.nextafter(wide, np.float32(np.inf)), ties])
    got = one_instruction("cvt.rn.f16.f32", np.float16, x)
    assert np.array_equal(got, x.astype(np.float16), equal_nan=True)
    number = x[~np.isnan(x)]
    expected = torch.from_numpy(number).to(torch.bfloat16).view(torch.int16).numpy()
    assert np.array_equal(one_instruction("cvt.rn.bf16.f32", np.int16, number), expected)


@pytest.mark.parametrize(("kernel", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_scalar_halves_are_rounded_once(halves: Gpu, kernel: str, dtype: torch.dtype) -> None:
    n = 500
    a, b = pair(dtype, n)
    out = halves.empty(16 * n)
    halves.run(kernel, 4, 128, halves.put(bits(a)), halves.put(bits(b)), out, n)
    got = torch.from_numpy(halves.get(out, (8, n), np.int16).copy()).view(dtype)
    x, y = a.double(), b.double()
    last = torch.tanh(y) if kernel == "f16" else x - y
    exact = [x + y, x * y, x / y, torch.maximum(x, y), x.abs().sqrt(), x.exp(), last, x * y + x]
    for row, expected in enumerate(exact):
        difference = (got[row].double() - expected).abs()
        difference[got[row] == expected.to(dtype)] = 0  # infinities
        ulp = torch.finfo(dtype).eps * expected.abs().clamp(min=torch.finfo(dtype).tiny)
        limit = 0.5 if row in (0, 1, 3, 7) else 1.1
        assert (difference <= ulp * limit * 1.001).all(), row


def test_packed_halves(halves: Gpu) -> None:
    n = 300
    a, b = pair(torch.float16, 2 * n)
    out = halves.empty(32 * n)
    halves.run("f16x2", 3, 128, halves.put(bits(a)), halves.put(bits(b)), out, n)
    got = halves.get(out, (8, 2 * n), np.float16)
    x, y = a.numpy(), b.numpy()
    fused = (x.astype(np.float64) * y + y).astype(np.float16)
    lows = np.stack([x[::2], y[::2]], 1).ravel()
    expected = [x + y, x * y, fused, np.minimum(x, y), (x > y).astype(np.float16), x - y,
                np.maximum(fused, 0), lows]  # fmt: skip
    for row, right in enumerate(expected):
        assert np.array_equal(got[row], right), row


def test_atomics_on_halves(halves: Gpu) -> None:
    places = [halves.put(np.zeros(2, np.uint16)) for _ in range(4)]
    halves.run("half_atomics", 1, 64, *places)
    a, b, c, d = (halves.get(p, 2, np.int16).copy() for p in places)
    assert a.view(np.float16)[0] == 32
    assert b.view(np.float16).tolist() == [64, 128]
    assert torch.from_numpy(c).view(torch.bfloat16)[0] == 64
    assert torch.from_numpy(d).view(torch.bfloat16).tolist() == [64, 128]


def test_asynchronous_copies(halves: Gpu) -> None:
    a, c = (
        np.random.default_rng(0).random((128, 4), np.float32),
        np.arange(100, dtype=np.float32) + 1,
    )
    out, rest = halves.empty(2048), halves.empty(512)
    report = halves.run("copies", 1, 128, halves.put(a), out, halves.put(c), rest, 100, checks=True)
    assert report.faults == ()
    assert np.array_equal(halves.get(out, (128, 4)), a[::-1])
    assert np.array_equal(halves.get(rest, 128), np.concatenate([np.zeros(28), c[::-1]]))


def test_cooperative_groups(halves: Gpu) -> None:
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    out = halves.empty(4 * 192)
    halves.run("groups", 1, 64, halves.put(a), out)
    got = halves.get(out, (3, 64))
    assert np.allclose(got[0], np.repeat(a.reshape(2, 32).sum(1), 32), atol=1e-5)
    assert np.array_equal(got[1], np.repeat(a.reshape(8, 8).max(1), 8))
    for first in (0, 32):
        on = a[first : first + 32] > 0
        rank = np.cumsum(on) - 1
        expected = np.where(on, on.sum() * 100 + rank, 0)
        assert np.array_equal(got[2, first : first + 32], expected)


@pytest.mark.parametrize("order", ["forward", "reverse", "interleaved"])
def test_a_barrier_of_the_whole_grid(order: str) -> None:
    gpu = Gpu(ptx_of("half.cu"), block_order=order)
    n = 20 * 64
    a = gpu.empty(4 * n)
    gpu.run("grid_barrier", 20, 64, a, n, cooperative=True)
    assert np.array_equal(gpu.get(a, n, np.int32), (np.arange(n) + n // 2) % n * 2)


# --- matrices -------------------------------------------------------------------------------------


def random(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def raw(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.uint8).numpy()


@pytest.mark.parametrize(
    ("kernel", "shape", "dtype", "out"),
    [
        ("wmma_f16", (16, 16, 16), torch.float16, torch.float32),
        ("wmma_f16_tall", (32, 8, 16), torch.float16, torch.float32),
        ("wmma_f16_wide", (8, 32, 16), torch.float16, torch.float16),
        ("wmma_bf16", (16, 16, 16), torch.bfloat16, torch.float32),
        ("wmma_s8", (16, 16, 16), torch.int8, torch.int32),
    ],
)
def test_wmma(matrices: Gpu, kernel: str, shape: tuple[int, int, int], dtype: torch.dtype,
              out: torch.dtype) -> None:  # fmt: skip
    m, n, k = shape
    a, b = random((m, k), dtype, 0), random((k, n), dtype, 1)
    c = (torch.arange(m * n).reshape(m, n) % 7).to(out)
    place = matrices.put(raw(c))
    matrices.run(kernel, 1, 32, matrices.put(raw(a)), matrices.put(raw(b)), place)
    size = m * n * out.itemsize
    got = torch.frombuffer(bytearray(matrices.get(place, size, np.uint8).tobytes()), dtype=out)
    expected = 2 * (a.double() @ b.double() + c.double())
    error = 2e-3 * expected.abs().max() if out == torch.float16 else 1e-5
    assert torch.allclose(got.reshape(m, n).double(), expected, atol=float(error), rtol=1e-6)


def test_wmma_with_column_major_matrices(matrices: Gpu) -> None:
    a, b = random((16, 16), torch.float16, 0), random((16, 16), torch.float16, 1)
    place = matrices.empty(1024)
    matrices.run("wmma_columns", 1, 32, matrices.put(raw(a)), matrices.put(raw(b)), place)
    expected = (a.double().T @ b.double().T + 1).T.numpy()
    assert np.allclose(matrices.get(place, (16, 16)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "k", "dtype"),
    [("mma_f16", 16, torch.float16), ("mma_bf16", 8, torch.bfloat16),
     ("mma_tf32", 8, torch.float32), ("mma_s8", 32, torch.int8)],
)  # fmt: skip
def test_mma_fragments_lie_where_the_manual_says(
    matrices: Gpu, kernel: str, k: int, dtype: torch.dtype
) -> None:
    a, b = random((16, k), dtype, 0), random((k, 8), dtype, 1)
    place = matrices.empty(512)
    matrices.run(kernel, 1, 32, matrices.put(raw(a)), matrices.put(raw(b)), place)
    row, column = np.arange(16)[:, None], np.arange(8)[None, :]
    start = 1 + column % 2 + 2 * (row >= 8)
    expected = a.double().numpy() @ b.double().numpy() + start
    got = matrices.get(place, (16, 8), np.int32 if dtype == torch.int8 else np.float32)
    assert np.allclose(got, expected, atol=0.02 if kernel == "mma_tf32" else 1e-5)


def test_mma_in_double_precision(matrices: Gpu) -> None:
    a, b = random((8, 4), torch.float64, 0), random((4, 8), torch.float64, 1)
    place = matrices.empty(512)
    matrices.run("mma_f64", 1, 32, matrices.put(raw(a)), matrices.put(raw(b)), place)
    expected = (a @ b).numpy() + 1 + np.arange(8) % 2
    assert np.allclose(matrices.get(place, (8, 8), np.float64), expected, rtol=1e-14)


def test_ldmatrix_feeds_mma(matrices: Gpu) -> None:
    a, b = random((16, 16), torch.float16, 0), random((16, 8), torch.float16, 1)
    place = matrices.empty(512)
    matrices.run("ldmatrix_mma", 1, 32, matrices.put(raw(a)), matrices.put(raw(b)), place)
    assert np.allclose(matrices.get(place, (16, 8)), (a.double() @ b.double()).numpy(), atol=1e-5)


def test_stmatrix_undoes_movmatrix() -> None:
    gpu = Gpu(ptx_of("matrix.cu"))
    a = random((8, 8), torch.float16, 0)
    place = gpu.empty(128)
    gpu.run("stmatrix", 1, 32, gpu.put(raw(a)), place)
    assert np.array_equal(gpu.get(place, (8, 8), np.float16), a.numpy())

"""CUDA's math library, as nvcc compiles it, within the errors that NVIDIA documents for a GPU.

Bounds in ulp: CUDA C++ Programming Guide, "Mathematical Functions Appendix".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.special as special

from support.emulator_harness import Gpu, ptx_of

pytestmark = pytest.mark.unit
N = 2048
Function = Callable[..., np.ndarray]
SINGLE: dict[str, tuple[Function, float]] = {
    "expf": (np.exp, 1), "exp2f": (np.exp2, 2), "expm1f": (np.expm1, 1), "logf": (np.log, 1),
    "log2f": (np.log2, 1), "log10f": (np.log10, 2), "log1pf": (np.log1p, 1), "sinf": (np.sin, 2),
    "cosf": (np.cos, 2), "tanf": (np.tan, 4), "asinf": (np.arcsin, 2), "acosf": (np.arccos, 2),
    "atanf": (np.arctan, 2), "sinhf": (np.sinh, 3), "coshf": (np.cosh, 2), "tanhf": (np.tanh, 2),
    "asinhf": (np.arcsinh, 3), "erff": (special.erf, 2), "erfcf": (special.erfc, 4),
    "sqrtf": (np.sqrt, 0), "rsqrtf": (lambda x: 1 / np.sqrt(x), 2), "cbrtf": (np.cbrt, 1),
    "floorf": (np.floor, 0), "ceilf": (np.ceil, 0), "rintf": (np.rint, 0),
    "truncf": (np.trunc, 0), "fabsf": (np.abs, 0), "normcdff": (special.ndtr, 5),
    "roundf": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), 0),
    "__frcp_rn": (lambda x: 1 / x, 0),
}  # fmt: skip
DOUBLE: dict[str, tuple[Function, float]] = {
    "exp": (np.exp, 1), "log": (np.log, 1), "sin": (np.sin, 2), "cos": (np.cos, 2),
    "tanh": (np.tanh, 2), "erf": (special.erf, 2), "sqrt": (np.sqrt, 0), "cbrt": (np.cbrt, 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1), "exp2": (np.exp2, 1), "log1p": (np.log1p, 1),
}  # fmt: skip
PAIRS: dict[str, tuple[Function, float]] = {
    "powf": (np.power, 4), "fmodf": (np.fmod, 0), "atan2f": (np.arctan2, 3),
    "hypotf": (np.hypot, 3), "fmaxf": (np.fmax, 0), "fminf": (np.fmin, 0),
    "copysignf": (np.copysign, 0), "fdimf": (lambda a, b: np.where(a <= b, 0, a - b), 0),
    "remainderf": (np.vectorize(
        lambda a, b: math.remainder(a, b) if b and math.isfinite(a) and b == b else np.nan,
        otypes=[float]), 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu(ptx_of("math.cu"))


def inputs(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    edge = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 88.7, -103, 1e-40, 105615.0, 1e9, 0.5, 2, 3]
    sizes = 10.0 ** rng.uniform(-30, 30, 500) * rng.choice([-1, 1], 500)
    found = np.concatenate([edge, rng.standard_normal(1000), rng.uniform(-100, 100, 500), sizes])
    return rng.permutation(np.resize(found, N)).astype(np.float32)


def worst_ulp(got: np.ndarray, expected: np.ndarray) -> float:
    right = expected.astype(got.dtype)
    equal = (got == right) | ((got != got) & (right != right))
    tiny = np.finfo(got.dtype).smallest_subnormal
    ulp = np.maximum(np.spacing(np.abs(right)), tiny).astype(np.float64)
    error = np.abs(got.astype(np.float64) - expected) / ulp
    error = np.where(np.isnan(error), np.inf, error)
    return float(np.where(equal, 0, error).max())


@pytest.mark.parametrize("name", SINGLE)
def test_single_precision(gpu: Gpu, name: str) -> None:
    function, bound = SINGLE[name]
    x = inputs(0)
    out = gpu.empty(4 * N)
    gpu.run(f"f_{name}", N // 128, 128, gpu.put(x), out, N)
    with np.errstate(all="ignore"):
        assert worst_ulp(gpu.get(out, N), function(x.astype(np.float64))) <= bound + 0.51


@pytest.mark.parametrize("name", PAIRS)
def test_single_precision_of_two_arguments(gpu: Gpu, name: str) -> None:
    function, bound = PAIRS[name]
    x, y = inputs(0), inputs(1)
    out = gpu.empty(4 * N)
    gpu.run(f"g_{name}", N // 128, 128, gpu.put(x), gpu.put(y), out, N)
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64), y.astype(np.float64))
        assert worst_ulp(gpu.get(out, N), expected) <= bound + 0.51


@pytest.mark.parametrize("name", DOUBLE)
def test_double_precision(gpu: Gpu, name: str) -> None:
    function, bound = DOUBLE[name]
    x = inputs(0).astype(np.float64)
    out = gpu.empty(8 * N)
    gpu.run(f"d_{name}", N // 128, 128, gpu.put(x), out, N)
    with np.errstate(all="ignore"):
        assert worst_ulp(gpu.get(out, N, np.float64), function(x)) <= bound + 1


def test_division_is_rounded_correctly(gpu: Gpu) -> None:
    x, y = inputs(0), inputs(1)
    out = gpu.empty(4 * N)
    gpu.run("divide", N // 128, 128, gpu.put(x), gpu.put(y), out, N)
    with np.errstate(all="ignore"):
        assert worst_ulp(gpu.get(out, N), x / y) == 0


def test_fast_intrinsics(gpu: Gpu) -> None:
    x = np.random.default_rng(0).uniform(-5, 5, N).astype(np.float32)
    out = gpu.empty(4 * N)
    gpu.run("f___expf", N // 128, 128, gpu.put(x), out, N)
    assert worst_ulp(gpu.get(out, N), np.exp(x.astype(np.float64))) <= 2 + 1.173 * 5
    gpu.run("f___logf", N // 128, 128, gpu.put(np.abs(x)), out, N)
    difference = np.abs(gpu.get(out, N) - np.log(np.abs(x).astype(np.float64)))
    assert difference.max() <= 2**-20

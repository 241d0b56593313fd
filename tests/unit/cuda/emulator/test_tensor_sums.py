"""How tensor cores add: the emulator's mma against what one H200 gave, bit for bit."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from support.emulator_harness import Gpu, ptx_of
from support.mma_fragments import DISTRIBUTIONS, KINDS, MEASURED, fragments

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def tensor_cores() -> Gpu:
    return Gpu(ptx_of("tensor_sums.cu"))


def product(gpu: Gpu, kind: str, distribution: str) -> np.ndarray:
    given = fragments(kind, distribution)
    out = gpu.empty(given.c.nbytes)
    gpu.run(kind, len(given.c), 32, gpu.put(given.a), gpu.put(given.b), gpu.put(given.c), out)
    return gpu.get(out, given.c.shape, given.c.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_mma_gives_the_bits_that_a_gpu_gave(tensor_cores: Gpu, kind: str) -> None:
    for distribution in DISTRIBUTIONS:
        got = hashlib.sha256(product(tensor_cores, kind, distribution).tobytes()).hexdigest()
        assert got == MEASURED[kind, distribution], distribution


def test_what_lies_25_bits_below_the_largest_addend_is_cut(tensor_cores: Gpu) -> None:
    a, b = np.zeros((1, 16, 8), np.float32), np.ones((1, 8, 8), np.float32)
    a[0, :, 0], a[0, :, 1] = 1.0, 2.0 ** -np.arange(11, 27)
    b[0, 1] = 2.0**-10
    c, out = np.full((1, 16, 8), -1.0, np.float32), tensor_cores.empty(512)
    places = [tensor_cores.put(v) for v in (a.view(np.uint32), b.view(np.uint32), c)]
    tensor_cores.run("tf32k8", 1, 32, *places, out)
    got = tensor_cores.get(out, (16, 8))[:, 0]
    small = 2.0 ** -np.arange(21.0, 37.0)
    assert np.array_equal(got, np.where(small >= 2.0**-25, small, 0.0))


def test_a_sum_is_cut_and_not_rounded(tensor_cores: Gpu) -> None:
    a, b = np.zeros((1, 16, 8), np.float32), np.ones((1, 8, 8), np.float32)
    a[0, :, 0] = 1.0
    c, out = np.full((1, 16, 8), 3.0 * 2.0**-25, np.float32), tensor_cores.empty(512)
    places = [tensor_cores.put(v) for v in (a.view(np.uint32), b.view(np.uint32), c)]
    tensor_cores.run("tf32k8", 1, 32, *places, out)
    assert (tensor_cores.get(out, (16, 8)) == 1.0).all()  # the nearest float is 1 + 2^-23

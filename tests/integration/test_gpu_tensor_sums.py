"""How a GPU's tensor cores add, against the digests by which the emulator's mma is tested."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.gpu.device import CudaDevice
from coding_framework.cuda.plan.launch_plan import Launch
from support.emulator_harness import KERNELS
from support.mma_fragments import DISTRIBUTIONS, KINDS, MEASURED, fragments

pytestmark = [pytest.mark.integration, pytest.mark.cuda]


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    build = CUDACompiler().compile_source((KERNELS / "tensor_sums.cu").read_text())
    assert build.binary_path is not None, build.reason
    with CudaDevice() as device:
        device.load(Path(build.binary_path))
        yield device


def digest(device: CudaDevice, kind: str, distribution: str) -> str:
    """Of what the GPU makes of these fragments."""
    given = fragments(kind, distribution)
    places = []
    for array in (given.a, given.b, given.c):
        places.append(device.alloc(array.nbytes))
        device.upload(places[-1], np.ascontiguousarray(array).tobytes())
    out = device.alloc(given.c.nbytes)
    arguments = struct.pack("<QQQQ", *places, out)
    device.launch(Launch(kind, (len(given.c), 1, 1), (32, 1, 1), 0, arguments))
    return hashlib.sha256(device.download(out, given.c.nbytes)).hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_cores_add_as_the_emulator_does(device: CudaDevice, kind: str) -> None:
    for distribution in DISTRIBUTIONS:
        assert digest(device, kind, distribution) == MEASURED[kind, distribution], distribution

"""Registers as ptxas wrote them into its file, whatever the candidate had printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cuda.build.cubin import registers_in
from coding_framework.cuda.compiler import CUDACompiler

pytestmark = pytest.mark.unit

SOURCE = """
__device__ __noinline__ float helper(float x) { return x * x + 1.0f; }
__global__ void first(float* x) { x[threadIdx.x] = helper(x[threadIdx.x]); }
__global__ void second(float* x) {
  float v[40];
  for (int i = 0; i < 40; i++) v[i] = x[i * 32 + threadIdx.x];
  for (int r = 0; r < 9; r++) for (int i = 0; i < 40; i++) v[i] = v[i] * v[(i + 7) % 40] + 1.0f;
  for (int i = 0; i < 40; i++) x[i * 32 + threadIdx.x] = v[i];
}
"""
LIE = """asm(".print \\"ptxas info    : Compiling entry function '_Z6secondPf' for 'sm_90'\\"");
asm(".print \\"ptxas info    : Used 1 registers\\"");
"""


def test_registers_are_those_of_the_file_and_not_what_was_printed() -> None:
    compiler = CUDACompiler()
    plain, lying = compiler.compile_source(SOURCE), compiler.compile_source(SOURCE + LIE)
    assert plain.success, plain.reason
    assert lying.success, lying.reason
    counted = {k.name: k.registers for k in plain.kernels}
    assert set(counted) == {"_Z5firstPf", "_Z6secondPf"}
    assert counted["_Z6secondPf"] > 40
    assert {k.name: k.registers for k in lying.kernels} == counted
    assert lying.binary_path is not None
    assert registers_in((Path(lying.binary_path) / "device.cubin").read_bytes()) == counted


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"no cubin at all" * 20, b"\x7fELF" + b"\xff" * 400]
)
def test_what_is_no_cubin_has_no_registers(data: bytes) -> None:
    assert registers_in(data) == {}

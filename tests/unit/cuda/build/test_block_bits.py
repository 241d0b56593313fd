"""How many blocks a kernel can tell apart, from the bits of its index."""

from __future__ import annotations

import pytest

from coding_framework.cuda.build.block_bits import too_few_bits
from support.emulator_harness import compile_ptx

pytestmark = pytest.mark.unit

FEW = {
    "a row in 16 bits": ("unsigned short r = blockIdx.x; o[r * w + threadIdx.x] = 1;", 65536),
    "an element in 16 bits": (
        "unsigned short i = blockIdx.x * blockDim.x + threadIdx.x; if (i < w) o[i] = 1;", 256,
    ),
    "a signed one": ("short i = blockIdx.x * 256 + threadIdx.x; if (i < w) o[i] = 1;", 256),
    "a row in 8 bits": ("unsigned char r = blockIdx.x; o[r * w + threadIdx.x] = x[r];", 256),
}  # fmt: skip
ENOUGH = [
    "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < w) o[i] = x[i];",
    "unsigned b = blockIdx.x; o[(b & 0xffff) * 64 + (b >> 16)] = 1;",
    "unsigned short r = blockIdx.x; o[r] = x[blockIdx.x >> 16];",
    "unsigned short r = blockIdx.x; if (blockIdx.x < 70000) o[r + w * (blockIdx.x > 65535)] = 1;",
    "unsigned short r = blockIdx.x; atomicAdd(o + r, 1.0f);",
    "unsigned short t = threadIdx.x; o[blockIdx.x * 256 + t] = 1;",
    "for (int i = blockIdx.x; i < w; i += gridDim.x) { short c = x[i]; o[i] = c; }",
]


def _ptx(body: str) -> str:
    return compile_ptx(
        f'extern "C" __global__ void k(const float* x, float* o, int w) {{ {body} }}'
    )


@pytest.mark.parametrize("name", FEW)
def test_an_index_of_few_bits_tells_few_blocks_apart(name: str) -> None:
    body, told = FEW[name]
    ptx = _ptx(body)
    why = too_few_bits(ptx, "k", (told + 1, 1, 1), (256, 1, 1))
    assert why == f"its index tells {told} of {told + 1} blocks apart (blockIdx.x)"
    assert too_few_bits(ptx, "k", (told, 1, 1), (256, 1, 1)) is None


@pytest.mark.parametrize("body", ENOUGH)
def test_blocks_that_differ_by_other_bits_are_told_apart(body: str) -> None:
    assert too_few_bits(_ptx(body), "k", (100_000, 1, 1), (256, 1, 1)) is None

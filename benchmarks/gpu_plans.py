"""Plans of one launch over the kernels of gpu_kernels.cu, on either device."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_io import ROOT

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.device.device import Device
from coding_framework.cuda.plan.launch_plan import Launch, LaunchPlan

Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One launch: x in, o out, two integers. Every kernel of the file takes these."""

    name: str
    kernel: str
    grid: Extent
    block: Extent
    input_floats: int
    output_floats: int
    first: int
    second: int = 0
    group: str = ""
    """Kernels of one group compute the same."""
    rank: int = 0
    """Place in its group, from worse to better."""

    @property
    def input_bytes(self) -> int:
        return 4 * self.input_floats

    @property
    def output_bytes(self) -> int:
        return 4 * self.output_floats

    def contents(self, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Values of x in [-1, 1): steps of `multiply_add` do not overflow."""
        rng = np.random.Generator(np.random.Philox(seed))
        return rng.random(self.input_floats, dtype=np.float32) * 2 - 1

    def place(self, device: Device) -> tuple[LaunchPlan, int, int]:
        """The plan on a device where the build is loaded, and where x and o lie."""
        x, o = device.alloc(self.input_bytes), device.alloc(self.output_bytes)
        tail = (self.first,) if self.kernel == "copy4" else (self.first, self.second)
        params = struct.pack(f"<QQ{len(tail)}i", x, o, *tail)
        launch = Launch(self.kernel, self.grid, self.block, 0, params)
        return LaunchPlan((), (launch,), ()), x, o


def build(compiler: CUDACompiler | None = None) -> Path:
    """The compiled kernels."""
    source = (ROOT / "benchmarks" / "gpu_kernels.cu").read_text()
    result = (compiler or CUDACompiler()).compile_source(source)
    if not result.success or result.binary_path is None:
        raise SystemExit(f"gpu_kernels.cu does not compile: {result.reason}")
    return Path(result.binary_path)


def clock_kernels() -> Iterator[PlannedKernel]:
    """35 kernels that take from about 5 us to 5 ms on an H200."""
    for mib in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        n = mib << 18
        yield PlannedKernel(f"copy {mib} MiB", "copy4", (1056, 1, 1), (256, 1, 1), n, n, n // 4)
    for steps in (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288):
        n = 132 * 2048
        yield PlannedKernel(
            f"multiply_add {steps}", "multiply_add", (n // 256, 1, 1), (256, 1, 1), n, n, n, steps
        )
    for rows in (512, 2048, 8192, 32768):
        yield _rows("row_sum_shuffle", rows, 2048, 3)
    for size in (1024, 2048, 4096, 8192):
        yield _transpose("transpose_padded", size, 2)
    for size in (256, 512, 1024, 1536, 2048):
        yield _product("matmul_tiled", size, 2)


def ladder() -> Iterator[PlannedKernel]:
    """Hand-written versions of three functions, from worse to better, at sizes that the emulator
    can run."""
    for rows, cols in ((2048, 1024), (8192, 512), (1024, 4096)):
        for rank, kernel in enumerate(
            ("row_sum_serial", "row_sum_shared", "row_sum_shuffle", "row_sum_vector")
        ):
            yield _rows(kernel, rows, cols, rank)
    for size in (1024, 2048, 3072):
        for rank, kernel in enumerate(
            ("transpose_naive", "transpose_conflicts", "transpose_padded")
        ):
            yield _transpose(kernel, size, rank)
    for size in (256, 384, 512):
        for rank, kernel in enumerate(
            ("matmul_uncoalesced", "matmul_naive", "matmul_tiled", "matmul_blocked")
        ):
            yield _product(kernel, size, rank)


def strides() -> Iterator[PlannedKernel]:
    """Reads of shared memory with bank conflicts of all degrees, in words of 4, 8 and 16 bytes."""
    for words in (1, 2, 4):
        for stride in (1, 2, 3, 4, 6, 8, 16, 32):
            n = 1 << 20
            grid = (n // words // 1024, 1, 1)
            yield PlannedKernel(
                f"gather{words} {stride}", f"gather{words}", grid, (256, 1, 1), n, n, n, stride
            )


def _rows(kernel: str, rows: int, cols: int, rank: int) -> PlannedKernel:
    serial = kernel == "row_sum_serial"
    grid = ((rows + 127) // 128, 1, 1) if serial else (rows, 1, 1)
    block = (128, 1, 1) if serial else (256, 1, 1)
    group = f"row_sum {rows}x{cols}"
    return PlannedKernel(
        f"{kernel} {rows}x{cols}", kernel, grid, block, rows * cols, rows, rows, cols, group, rank
    )


def _transpose(kernel: str, size: int, rank: int) -> PlannedKernel:
    tall = 8 if kernel == "transpose_naive" else 32
    grid = ((size + 31) // 32, (size + tall - 1) // tall, 1)
    group = f"transpose {size}"
    n = size * size
    return PlannedKernel(
        f"{kernel} {size}", kernel, grid, (32, 8, 1), n, n, size, size, group, rank
    )


def _product(kernel: str, size: int, rank: int) -> PlannedKernel:
    blocked = kernel == "matmul_blocked"
    tile = 64 if blocked else 16
    grid = ((size + tile - 1) // tile, (size + tile - 1) // tile, 1)
    block = (64, 4, 1) if blocked else (16, 16, 1)
    n = size * size
    return PlannedKernel(
        f"{kernel} {size}", kernel, grid, block, 2 * n, n, size, 0, f"matmul {size}", rank
    )

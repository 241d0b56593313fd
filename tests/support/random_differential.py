"""Runs random kernels on the emulator and on the host and says where they differ."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from coding_framework.cuda.toolchain.toolkit import find_toolkit
from support.emulator_harness import Gpu
from support.random_kernels import BLOCKS, THREADS, RandomKernel, device_source, host_source


def differences(
    kernels: list[RandomKernel], folder: Path, seed: int, *, checks: bool = True
) -> list[str]:
    """A line for each kernel whose results differ from gcc's or that got a false alarm."""
    (folder / "device.cu").write_text(device_source(kernels))
    (folder / "host.cpp").write_text(host_source(kernels))
    for command in (
        f"{find_toolkit().nvcc} -ptx -arch=sm_90 -fmad=false -w device.cu -o device.ptx",
        # -frounding-math: gcc 12 else folds 0.0f - (float)i into -(float)i, which is -0 for i = 0
        "g++ -O0 -w -frounding-math -fwrapv -fno-strict-aliasing -ffp-contract=off -fPIC "
        "-shared host.cpp -o host.so",
    ):
        done = subprocess.run(
            command.split(), cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    host = ctypes.CDLL(str(folder / "host.so"))
    gpu = Gpu((folder / "device.ptx").read_text(), instruction_budget=50_000_000)
    data = np.random.default_rng(seed).integers(0, 2**32, THREADS * BLOCKS, dtype=np.uint32)
    given = gpu.put(data)
    found = []
    for kernel in kernels:
        found += _compare(kernel, gpu, host, data, given, checks)
    return found


def _compare(
    kernel: RandomKernel, gpu: Gpu, host: ctypes.CDLL, data: np.ndarray, given: int, checks: bool
) -> list[str]:
    expected, atomics = np.zeros(THREADS * BLOCKS, np.uint32), np.zeros(64, np.uint32)
    out, shared = gpu.put(expected), gpu.put(atomics)
    name = f"k{kernel.number}"
    getattr(host, name)(*(a.ctypes.data_as(ctypes.c_void_p) for a in (data, expected, atomics)))
    report = gpu.run(name, BLOCKS, THREADS, given, out, shared, checks=checks)
    found = []
    got = gpu.get(out, expected.shape, np.uint32)
    if not np.array_equal(got, expected):
        first = int(np.argmax(got != expected))
        found.append(f"{name}: thread {first} of {int((got != expected).sum())} wrong ones")
    if not np.array_equal(gpu.get(shared, 64, np.uint32), atomics):
        found.append(f"{name}: atomics differ")
    found += [f"{name}: false alarm: {f.message}" for f in report.faults]
    return found

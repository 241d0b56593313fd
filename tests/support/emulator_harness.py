"""What the emulator's tests share: nvcc, launches on arrays, one-instruction kernels."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from coding_framework.cuda.emulator.machine import Machine
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.plan.launch_plan import Launch, LaunchReport
from coding_framework.cuda.toolchain.native_parts import cache_dir
from coding_framework.cuda.toolchain.toolkit import find_toolkit

KERNELS = Path(__file__).parent / "kernels"


def compile_ptx(source: str, arch: str = "sm_90", flags: tuple[str, ...] = ()) -> str:
    """PTX of CUDA source by the real nvcc; kept by content, so that reruns are quick."""
    key = sha256("\0".join((source, arch, *flags)).encode()).hexdigest()[:24]
    folder = cache_dir() / "test_ptx"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{key}.ptx"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:  # other workers make the same
            made = Path(own) / "made.ptx"
            unit = Path(own) / "unit.cu"
            unit.write_text(source)
            command = [find_toolkit().nvcc, "-ptx", f"-arch={arch}", "-lineinfo", *flags]
            done = subprocess.run(
                [*command, unit, "-o", made], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            made.replace(target)
    return target.read_text()


@cache
def ptx_of(file: str, arch: str = "sm_90") -> str:
    """PTX of a file in kernels/."""
    return compile_ptx((KERNELS / file).read_text(), arch)


class Gpu:
    """One machine with a module, and arrays in and out of it."""

    def __init__(self, ptx: str, **settings: Any) -> None:
        self.machine = Machine(EmulatorSettings(**settings))
        self.info = self.machine.load_text(ptx)

    def put(self, array: np.ndarray) -> int:
        address = self.machine.memory.alloc(array.nbytes)
        self.machine.memory.upload(address, np.ascontiguousarray(array).tobytes())
        return address

    def empty(self, nbytes: int) -> int:
        return self.machine.memory.alloc(nbytes)

    def get(self, address: int, shape: Any, dtype: Any = np.float32) -> np.ndarray:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.machine.memory.download(address, count), dtype).reshape(shape)

    def params(self, kernel: str, *arguments: Any) -> bytes:
        """The parameter block: floats for 4- and 8-byte floats, ints, bytes as they are."""
        info = self.info.kernels[kernel]
        total = max((o + s for o, s in zip(info.param_offsets, info.param_sizes, strict=True)),
                    default=0)  # fmt: skip
        block = bytearray(total)
        assert len(arguments) == len(info.param_sizes)
        for offset, size, value in zip(
            info.param_offsets, info.param_sizes, arguments, strict=True
        ):
            if isinstance(value, bytes):
                data = value.ljust(size, b"\0")
            elif isinstance(value, float):
                data = struct.pack("<f" if size == 4 else "<d", value)
            else:
                data = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            block[offset : offset + size] = data
        return bytes(block)

    def run(self, kernel: str, grid: Any, block: Any, *arguments: Any, shared: int = 0,
            checks: bool = False, cooperative: bool = False) -> LaunchReport:  # fmt: skip
        launch = Launch(kernel, _dim(grid), _dim(block), shared, self.params(kernel, *arguments),
                        cooperative=cooperative)  # fmt: skip
        return self.machine.launch(launch, checks=checks)


def _dim(value: Any) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, int) else tuple(value)
    return (*parts, *(1,) * (3 - len(parts)))  # type: ignore[return-value]


_REGISTER = {1: ("b16", "%rs"), 2: ("b16", "%rs"), 4: ("b32", "%r"), 8: ("b64", "%rd")}


def one_instruction(opcode: str, result: Any, *operands: np.ndarray, predicate: bool = False,
                    prologue: str = "") -> np.ndarray:  # fmt: skip
    """Run one instruction on arrays, one element a thread; the result as dtype `result`."""
    count = len(operands[0])
    out = np.dtype(result)
    lines = ["ld.param.u64 %rd90, [out];", "mov.u32 %r90, %ctaid.x;", "mov.u32 %r91, %tid.x;",
             "mad.lo.s32 %r91, %r90, 128, %r91;"]  # fmt: skip
    params = [".param .u64 out"]
    names = []
    for n, array in enumerate(operands):
        size = array.dtype.itemsize
        kind, prefix = _REGISTER[size]
        params.append(f".param .u64 in{n}")
        lines += [f"ld.param.u64 %rd91, [in{n}];", f"mul.wide.u32 %rd92, %r91, {size};",
                  "add.s64 %rd91, %rd91, %rd92;",
                  f"ld.global.{'u8' if size == 1 else kind} {prefix}{n}, [%rd91];"]  # fmt: skip
        names.append(f"{prefix}{n}")
    kind, prefix = _REGISTER[out.itemsize]
    if prologue:
        lines.append(prologue)
    if predicate:
        lines += [f"{opcode} %p0, {', '.join(names)};", f"selp.{kind} {prefix}80, 1, 0, %p0;"]
    else:
        lines.append(f"{opcode} {prefix}80, {', '.join(names)};")
    stored = "u8" if out.itemsize == 1 else kind
    lines += [f"mul.wide.u32 %rd92, %r91, {out.itemsize};", "add.s64 %rd90, %rd90, %rd92;",
              f"st.global.{stored} [%rd90], {prefix}80;", "ret;"]  # fmt: skip
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n"
        f".visible .entry k({', '.join(params)})\n{{\n"
        ".reg .pred %p<9>;\n.reg .b16 %rs<99>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
        + "\n".join(lines) + "\n}\n"
    )  # fmt: skip
    gpu = Gpu(text)
    padded = (count + 127) // 128 * 128
    addresses = [gpu.put(np.concatenate([a, np.zeros(padded - count, a.dtype)])) for a in operands]
    target = gpu.empty(padded * out.itemsize)
    gpu.run("k", padded // 128, 128, target, *addresses)
    return gpu.get(target, padded, out)[:count]

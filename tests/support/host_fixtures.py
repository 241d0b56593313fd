"""What the tests of the host process share: a device that records, and layouts read from PTX."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

from coding_framework.cuda.host.wire import CUDA_ERROR_MEMORY_ALLOCATION, CudaCallError
from coding_framework.cuda.plan.launch_plan import (
    KernelInfo,
    Launch,
    Layout,
    ModuleInfo,
    SymbolInfo,
    TensorRef,
)

MEMORY_LIMIT = 64 << 20
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)", re.DOTALL)
_PARAM = re.compile(
    r"\.param\s+(?:\.align (\d+)\s+)?\.[a-z](\d+)\s+(?:\.ptr[^\n]*?\s)?[\w$]+(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(r"\.(const|global) [^;=]*?\.b8 ([\w$]+)\[(\d+)\]")


def module_of(build: Path) -> ModuleInfo:
    """Kernels and variables of a build's PTX, which is enough for kernels as plain as these."""
    text = (build / "device.ptx").read_text()
    kernels = {}
    for name, body in _ENTRY.findall(text):
        offsets, sizes, end = [], [], 0
        for align, bits, count in _PARAM.findall(body):
            size = int(bits) // 8 * int(count or 1)
            step = int(align) if align else size
            offsets.append((end + step - 1) // step * step)
            sizes.append(size)
            end = offsets[-1] + size
        kernels[name] = KernelInfo(name, tuple(offsets), tuple(sizes), static_shared_bytes=0)
    symbols = {
        name: SymbolInfo(
            name, 0x600000000000 + i * 65536, int(size), "const" if kind == "const" else "global"
        )
        for i, (kind, name, size) in enumerate(_VARIABLE.findall(text))
    }
    return ModuleInfo(kernels, symbols)


class RecordingDevice:
    """Device memory as bytes; launches are written down and not run."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytearray] = {}
        self.launches: list[Launch] = []
        self.calls: list[str] = []
        self._next = itertools.count(0x700000000000, 1 << 32)

    def malloc(self, nbytes: int) -> int:
        self.calls.append("malloc")
        if nbytes + sum(map(len, self.blocks.values())) > MEMORY_LIMIT:
            raise CudaCallError(CUDA_ERROR_MEMORY_ALLOCATION)
        address = next(self._next)
        self.blocks[address] = bytearray(b"\xff" * nbytes)
        return address

    def free(self, address: int, *, at_once: bool) -> None:
        self.calls.append("free")
        if self.blocks.pop(address, None) is None:
            raise CudaCallError

    def upload(self, address: int, data: bytes) -> None:
        self.calls.append("upload")
        self._view(address, len(data))[:] = data

    def download(self, address: int, nbytes: int) -> bytes:
        self.calls.append("download")
        return bytes(self._view(address, nbytes))

    def copy(
        self, destination: int, source: int, nbytes: int, layout: Layout | None = None
    ) -> None:
        assert layout is None
        self.calls.append("copy")
        self._view(destination, nbytes)[:] = bytes(self._view(source, nbytes))

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self.calls.append("fill")
        view = self._view(address, nbytes)
        view[:] = bytes([value]) * nbytes

    def launch(self, launch: Launch) -> None:
        self.calls.append("launch")
        self.launches.append(launch)

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def order(self, what: int, one: int, other: int) -> None:
        self.calls.append("order")

    def tensor(self, *shape: int, dtype: str = "float32", data: bytes | None = None) -> TensorRef:
        """A contiguous tensor in this memory."""
        nbytes = math.prod(shape) * {"float64": 8, "float16": 2}.get(dtype, 4)
        address = self.malloc(nbytes)
        if data is not None:
            self.upload(address, data)
        self.calls.clear()
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        return TensorRef(address, shape, strides, dtype)

    def _view(self, address: int, nbytes: int) -> memoryview:
        for start, block in self.blocks.items():
            if start <= address and address + nbytes <= start + len(block):
                return memoryview(block)[address - start : address - start + nbytes]
        if 0x600000000000 <= address < 0x600001000000:  # a variable of the module
            self.blocks[address] = bytearray(65536)
            return self._view(address, nbytes)
        raise CudaCallError

"""The same source against our small torch headers and the real ones: accepted by both, same device
code? For people who doubt a compile error, and for the benchmark of the headers' cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from coding_framework.cuda.build.ptx_summary import ptx_of
from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler, KernelCompilationCache
from coding_framework.types import CompilationResult

TORCH_CPU_LIMIT_S = 600
TORCH_MEMORY_BYTES = 24 << 30
"""Address space; 3.1 GB of it were seen in use."""
_NOT_CODE = re.compile(r"^\s*(?://.*|\.(?:loc|file)\b.*|\.global .*_INTERNAL_.*)?$")
"""Comments, source lines, and what a header that was included leaves in every module."""


@dataclass(frozen=True, slots=True)
class HeaderComparison:
    """Maker: `compare_headers`. Consumer: `cuda-rl judge --headers torch`."""

    small: CompilationResult
    torch: CompilationResult
    same_device_code: bool | None
    """Instruction for instruction; None where one of the two did not compile."""

    def __str__(self) -> str:
        both = f"{_accepts(self.torch)} with the real headers, {_accepts(self.small)} with ours"
        if self.same_device_code is None:
            return both
        return f"{both}; {'the same' if self.same_device_code else 'other'} device code"


def torch_compiler(
    sandbox: str = "auto", *, cache: KernelCompilationCache | None = None
) -> CUDACompiler:
    """A compiler against the real headers, with the limits that they need."""
    return CUDACompiler(
        CompilerConfig(
            headers="torch",
            cpu_limit_s=TORCH_CPU_LIMIT_S,
            memory_bytes=TORCH_MEMORY_BYTES,
            sandbox=sandbox,
        ),
        cache=cache,
    )


def compare_headers(code: str, sandbox: str = "auto") -> HeaderComparison:
    """Compile `code` both ways. Raises InfrastructureError on a fault of ours, MissingToolError
    where torch's or Python's headers are not installed."""
    small = CUDACompiler(CompilerConfig(sandbox=sandbox)).compile_source(code)
    torch = torch_compiler(sandbox).compile_source(code)
    same = None
    if small.binary_path is not None and torch.binary_path is not None:
        same = _instructions(small.binary_path) == _instructions(torch.binary_path)
    return HeaderComparison(small, torch, same)


def _instructions(build: str) -> list[str]:
    """The PTX without comments and source lines, up to the debug sections."""
    text = ptx_of(Path(build))
    text = text.split("\n\t.section\t", 1)[0]
    return [line.strip() for line in text.splitlines() if not _NOT_CODE.match(line)]


def _accepts(result: CompilationResult) -> str:
    time = "cached" if result.cache_hit else f"{result.latency_s:.1f} s"
    return f"compiles ({time})" if result.success else f"does not compile ({result.reason[:200]})"

"""A compiler with a cache of this test session's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler, KernelCompilationCache


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> CUDACompiler:
    return CUDACompiler(cache=KernelCompilationCache(tmp_path_factory.mktemp("builds")))


@pytest.fixture(scope="session")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> CUDACompiler:
    """Gives up after 1 s of CPU time, so that tests of endless compilations are short."""
    config = CompilerConfig(cpu_limit_s=1, memory_bytes=2 << 30)
    return CUDACompiler(config, cache=KernelCompilationCache(tmp_path_factory.mktemp("builds")))


@pytest.fixture(scope="session")
def sparing(tmp_path_factory: pytest.TempPathFactory) -> CUDACompiler:
    """Gives little memory, and the usual time: on a slow machine, too, it is the memory that ends
    what asks for more."""
    config = CompilerConfig(memory_bytes=2 << 30)
    return CUDACompiler(config, cache=KernelCompilationCache(tmp_path_factory.mktemp("builds")))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("CUDA_RL_CACHE", str(tmp_path))
    return tmp_path

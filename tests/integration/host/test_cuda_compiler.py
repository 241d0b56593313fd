"""The compiler on honest sources: what a build holds, the cache, and many callers at once."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from coding_framework.cuda import compiler as compiler_module
from coding_framework.cuda.build import headers as compiler_headers
from coding_framework.cuda.compiler import CompilerConfig, CUDACompiler, KernelCompilationCache
from coding_framework.errors import CompilerKilledError, InfrastructureError
from coding_framework.types import Status

pytestmark = pytest.mark.integration

KERNEL = """
#include <torch/extension.h>
__global__ void scale_NUMBER(float* x, int n) {
  __shared__ float tile[64];
  int unused;
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  if (i < n) x[i] = tile[63 - threadIdx.x] * NUMBER;
}
torch::Tensor forward(torch::Tensor x) {
  scale_NUMBER<<<1, 64>>>(x.data_ptr<float>(), 64);
  return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def kernel(number: int) -> str:
    return KERNEL.replace("NUMBER", str(number))


async def test_a_build_holds_host_code_device_code_and_resources(compiler: CUDACompiler) -> None:
    result = await compiler.compile_kernel(kernel(3))
    assert result.success
    assert result.kernel_name == "_Z7scale_3Pfi"
    build = Path(str(result.binary_path))
    assert {p.name for p in build.iterdir()} >= {"host.so", "device.ptx", "device.cubin"}
    ptx = (build / "device.ptx").read_text()
    assert f".target sm_{compiler.architecture}" in ptx
    assert ".loc" in ptx  # source lines, for findings
    assert (result.registers > 0, result.spill_bytes, result.shared_bytes) == (True, 0, 256)
    assert [k.name for k in result.kernels] == ["_Z7scale_3Pfi"]
    assert result.warnings[0].line == 5
    assert 0 < result.latency_s < 30


async def test_equal_sources_share_a_build_and_others_do_not(compiler: CUDACompiler) -> None:
    first = await compiler.compile_kernel(kernel(4))
    again = await compiler.compile_kernel(kernel(4))
    other = await compiler.compile_kernel(kernel(5))
    assert (again.cache_hit, again.binary_path) == (True, first.binary_path)
    assert (other.cache_hit, other.digest == first.digest) == (False, False)


def test_flags_and_architecture_are_part_of_the_address(
    compiler: CUDACompiler, impatient: CUDACompiler
) -> None:
    config = CompilerConfig(architecture=80)
    ampere = CUDACompiler(config, cache=compiler.cache)
    result = ampere.compile_source(kernel(4))
    assert not result.cache_hit
    assert ".target sm_80" in (Path(str(result.binary_path)) / "device.ptx").read_text()
    digests = {c.compile_source(kernel(4)).digest for c in (compiler, impatient, ampere)}
    assert len(digests) == 3


@pytest.mark.slow
async def test_many_callers_wait_in_a_queue_that_costs_them_nothing(
    compiler: CUDACompiler,
) -> None:
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            names = [p.name() for p in psutil.Process().children(recursive=True) if p.is_running()]
            most = max(most, sum(n in ("cicc", "cudafe++", "cc1plus", "ptxas") for n in names))
            await asyncio.sleep(0.05)

    watcher = asyncio.create_task(watch())
    started = time.monotonic()
    results = await asyncio.gather(
        *(compiler.compile_kernel(kernel(100 + i % 8)) for i in range(32))
    )
    wall_s = time.monotonic() - started
    watcher.cancel()
    assert all(r.success for r in results)
    assert sum(not r.cache_hit for r in results) == 8
    assert most <= compiler_module.available_cores()
    assert sum(r.latency_s for r in results) < wall_s * compiler_module.available_cores() + 1


def test_device_code_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_module, "MAX_PTX_BYTES", 1000)
    small = CUDACompiler(cache=KernelCompilationCache(tmp_path))
    result = small.compile_source(kernel(6))
    assert (result.success, result.status) == (False, Status.OUTPUT_LIMIT)


def test_errors_name_their_lines(compiler: CUDACompiler) -> None:
    source = kernel(7).replace("tile[63", "tyle[63").replace("return x;", "return y;")
    result = compiler.compile_source(source)
    assert result.status is Status.COMPILE_ERROR
    assert [(e.line, "tyle" in e.message or '"y"' in e.message) for e in result.errors] == [
        (9, True),
        (13, True),
    ]
    assert result.reason.startswith('nvcc: line 9: identifier "tyle" is undefined')
    assert compiler.compile_source(source).cache_hit


@contextmanager
def terminated(tool: str, kills: int) -> Iterator[list[int]]:
    """SIGTERM to the first `kills` compiler processes of this name below us; gives their ids."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while len(killed) < kills and not over.wait(0.002):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    # a child of nvcc has its name until it runs its own program, and falls to
                    # the sandbox's first process when nvcc is killed before
                    if process.name() == tool and process.parent().name() not in (tool, "bwrap"):
                        process.terminate()
                        killed.append(process.pid)
                        process.wait(10)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


@pytest.mark.parametrize("tool", ["nvcc", "cicc", "cc1plus"])
def test_a_source_whose_compiler_was_terminated_compiles_at_the_second_try(
    compiler: CUDACompiler, tool: str
) -> None:
    busy = "".join(
        f"__global__ void busy_{i}(float* x) {{ x[0] = powf(x[{i}], sinf(x[1])); }}\n"
        for i in range(40)
    )  # each tool runs long enough to be seen
    with terminated(tool, kills=1) as killed:
        result = compiler.compile_source(f"{kernel(40)}{busy}// {tool}\n")
    assert len(killed) == 1
    assert result.success, result.reason


def test_a_compiler_that_is_always_terminated_is_ours_and_nothing_is_kept(
    compiler: CUDACompiler,
) -> None:
    with (
        terminated("nvcc", kills=9) as killed,
        pytest.raises(CompilerKilledError, match="killed from outside by signal 15"),
    ):
        compiler.compile_source(kernel(50))
    assert len(killed) == 2
    assert compiler.compile_source(kernel(50)).success


def test_a_linker_that_links_nothing_is_ours_and_nothing_is_kept(
    compiler: CUDACompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where /lib is not what it was: it was a verdict, which the cache kept."""
    plain = compiler.flags(kernel(60))
    with monkeypatch.context() as broken:
        broken.setattr(compiler, "flags", lambda *_: (*plain, "-lnot_here"))
        for _ in range(2):
            with pytest.raises(InfrastructureError, match="nothing compiles on this machine"):
                compiler.compile_source(kernel(60))
    assert compiler.compile_source(kernel(60)).success


def test_what_the_linker_says_of_a_source_alone_is_its_fault(compiler: CUDACompiler) -> None:
    twice = compiler.compile_source(kernel(61) + 'extern "C" void _init() {}\n')
    assert twice.status is Status.COMPILE_ERROR
    assert twice.reason.startswith("nvcc: linker:")


@pytest.mark.parametrize(
    "lie", ["#error linker: cannot find /lib/libm.so.6", '#pragma GCC error "linker: no"']
)
def test_a_source_that_speaks_as_the_linker_does_is_not_masked(
    compiler: CUDACompiler, lie: str
) -> None:
    told = compiler.compile_source(f"{lie}\n{kernel(62)}")
    assert told.status is Status.COMPILE_ERROR
    assert compiler.compile_source(f"{lie}\n{kernel(62)}").cache_hit


def test_an_update_of_the_headers_under_a_running_compiler_changes_nothing_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the package is updated meanwhile: no result of the new headers under the old
    address, and none of the old ones for the new."""
    package = tmp_path / "include"
    shutil.copytree(compiler_headers.INCLUDE_FOLDER, package)
    monkeypatch.setattr(compiler_headers, "INCLUDE_FOLDER", package)
    cache = KernelCompilationCache(tmp_path / "builds")
    running = CUDACompiler(cache=cache)
    first = running.compile_source(kernel(8))
    header = package / "torch" / "extension.h"
    whole = header.read_text()
    header.write_text("#error half written\n")
    assert running.compile_source(kernel(9)).success
    later = CUDACompiler(cache=cache)
    assert later.compile_source(kernel(9)).status is Status.COMPILE_ERROR
    header.write_text(whole)
    again = CUDACompiler(cache=cache).compile_source(kernel(8))
    assert (first.success, again.cache_hit, again.digest) == (True, True, first.digest)

"""Sources that attack the compilation. After each, an honest kernel compiles as before."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from coding_framework.cuda.compiler import CUDACompiler, KernelCompilationCache
from coding_framework.cuda.sandbox.native import NativeSandbox
from coding_framework.types import Status

pytestmark = pytest.mark.integration

HONEST = """
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2.0f;
}
"""
SECRET = Path("/etc/passwd").read_text().splitlines()[0]


def assert_harmless(compiler: CUDACompiler, source: str, *expected: Status) -> str:
    """The source ends with one of `expected`, tells nothing, and leaves no process behind."""
    result = compiler.compile_source(source)
    text = result.model_dump_json()
    assert result.status in expected, text[:500]
    assert "root:" not in text
    assert SECRET[:12] not in text
    assert "/work/" not in text
    assert len(text) < 40_000
    assert not [
        p
        for p in psutil.process_iter(["name", "cmdline"])  # of one that just ended: None
        if p.info["name"] == "cicc"
        and compiler.cache.folder.as_posix() in " ".join(p.info["cmdline"] or ())
    ]
    return text


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/etc/shadow", "/proc/self/environ", "/root/.bashrc", "../../../etc/passwd"],
)
def test_including_a_file_of_the_machine_gives_an_error_without_its_text(
    compiler: CUDACompiler, path: str
) -> None:
    if compiler.sandbox.name == "native":
        pytest.skip("the native sandbox hides no files")
    assert_harmless(compiler, f'#include "{path}"\n' + HONEST, Status.COMPILE_ERROR)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "/dev/null", "/dev/random", "."])
def test_including_a_device_ends_at_once(compiler: CUDACompiler, path: str) -> None:
    source = f"#include <{path}>\n" + HONEST + "error"
    assert_harmless(compiler, source, Status.COMPILE_ERROR)


@pytest.mark.parametrize(
    "line",
    [
        'asm(".incbin \\"/etc/passwd\\"");',
        '__asm__(".include \\"/etc/passwd\\"");',
        'const char text[] = {\n#embed "/etc/passwd"\n};',
        '#pragma GCC pch_preprocess "/etc/passwd"\n#include_next "/etc/passwd"',
    ],
)
def test_embedding_a_file_of_the_machine_fails(compiler: CUDACompiler, line: str) -> None:
    if compiler.sandbox.name == "native":
        pytest.skip("the native sandbox hides no files")
    assert_harmless(compiler, HONEST + line + "\nvoid f() {}\n", Status.COMPILE_ERROR)


BOMBS = {
    "template": """
template <int A, int B> struct bomb {
  static constexpr int v = bomb<A - 1, B * 2>::v + bomb<A - 1, B * 2 + 1>::v;
};
template <int B> struct bomb<0, B> { static constexpr int v = 1; };
__global__ void k(int* x) { *x = bomb<26, 1>::v; }
""",
    "constexpr": """
constexpr unsigned long spin(unsigned long n) {
  unsigned long s = 0;
  for (unsigned long i = 0; i < n; i++) s += i * s;
  return s;
}
template <unsigned long N> struct many {
  static constexpr unsigned long v = spin(900000 + N) + many<N - 1>::v;
};
template <> struct many<0> { static constexpr unsigned long v = 0; };
__global__ void k(unsigned long* x) { *x = many<190>::v; }
""",
    "macro": "#define A0 x += 1;\n"
    + "\n".join(
        f"#define A{i} A{i - 1} A{i - 1} A{i - 1} A{i - 1} A{i - 1} A{i - 1}" for i in range(1, 11)
    )
    + "\n__global__ void k(int* p) { int x = 0; A10 *p = x; }\n",
    "unrolling": """
__global__ void k(float* x) {
#pragma unroll
  for (int i = 0; i < 4096; i++)
#pragma unroll
    for (int j = 0; j < 4096; j++) x[i * 4096 + j] += x[j * 4096 + i] * x[i ^ j];
}
""",
    "array": "__device__ int big[1 << 28] = {1};\n" + HONEST,
    "host array": "int big[1 << 29] = {1};\n" + HONEST,
    "recursive include": '#include "kernel.cu"\n' + HONEST,
}


STATUS_OF_BOMB = {
    "template": Status.COMPILE_TIMEOUT,
    "constexpr": Status.COMPILE_TIMEOUT,
    "macro": Status.COMPILE_TIMEOUT,
    "unrolling": Status.COMPILE_TIMEOUT,
    "array": Status.MEMORY_LIMIT,
    "host array": Status.OUTPUT_LIMIT,
    "recursive include": Status.COMPILE_ERROR,
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_bombs_end_within_the_limits(
    impatient: CUDACompiler, sparing: CUDACompiler, name: str
) -> None:
    expected = STATUS_OF_BOMB[name]
    compiler = impatient if expected is Status.COMPILE_TIMEOUT else sparing
    assert_harmless(compiler, BOMBS[name], expected)


@pytest.mark.parametrize(
    "source",
    [
        "\n".join(f"int e{i} = undefined{i};" for i in range(3000)),
        "\n".join(f'#pragma message "flood {"x" * 20} {i}"' for i in range(2000)) + "\nint x = y;",
        "#error " + "x" * 90_000,
    ],
    ids=["errors", "messages", "one long message"],
)
def test_floods_of_messages_are_cut(compiler: CUDACompiler, source: str) -> None:
    assert_harmless(compiler, source, Status.COMPILE_ERROR)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("int a;\0int b;", "NUL"),
        ("int \ud800;", "Unicode"),
        ("x" * 100_001, "100001 characters"),
        ("  \n\t ", "empty"),
    ],
    ids=["nul", "surrogate", "too long", "empty"],
)
def test_text_that_is_no_source_is_refused_in_a_sentence(
    compiler: CUDACompiler, source: str, reason: str
) -> None:
    result = compiler.compile_source(source)
    assert result.status is Status.COMPILE_ERROR
    assert reason in result.reason


def test_a_file_name_made_by_line_directives_cannot_pass_for_our_own_failure(
    compiler: CUDACompiler,
) -> None:
    source = (
        '#line 1 "bwrap: Can\'t mount proc"\nint x = y;\n#line 3 "nvcc error : died"\nint z = q;\n'
    )
    assert_harmless(compiler, source, Status.COMPILE_ERROR)


def test_the_native_sandbox_hides_files_from_the_compiler_too(tmp_path: Path) -> None:
    sandbox = NativeSandbox()
    if sandbox.missing() or not sandbox.hides_files:
        pytest.skip("this kernel has no Landlock")
    compiler = CUDACompiler(cache=KernelCompilationCache(tmp_path), sandbox=sandbox)
    assert_harmless(compiler, '#include "/etc/passwd"\n' + HONEST, Status.COMPILE_ERROR)
    assert compiler.compile_source(HONEST).success


def test_an_honest_kernel_still_compiles_afterwards(
    compiler: CUDACompiler, impatient: CUDACompiler
) -> None:
    assert compiler.compile_source(HONEST).success
    assert impatient.compile_source(HONEST).success
    left = list((compiler.cache.folder / "partial").iterdir())
    left += list((impatient.cache.folder / "partial").iterdir())
    assert left == []


def test_a_source_cannot_have_its_failure_masked_as_ours(compiler: CUDACompiler) -> None:
    """A line like gcc's own about a killed compiler: no exception, a verdict; and not kept."""
    words = "gcc: fatal error: Killed signal terminated program cc1plus"
    source = f'#pragma GCC error "a\\n{words}\\nb"\n__global__ void k() {{}}\n'
    for _ in range(2):
        result = compiler.compile_source(source)
        assert (result.status, result.cache_hit) == (Status.COMPILE_ERROR, False)

"""What is compiled, named, kept and given back is the bytes of the source and no others."""

from __future__ import annotations

import hashlib
import random
import subprocess
from pathlib import Path

import pytest

from coding_framework.commands.one_kernel import read_kernel
from coding_framework.cuda.build.ptx_summary import may_repeat, ptx_digest, ptx_of
from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.judge import Judge
from coding_framework.types import Candidate, Status
from support.judge_tasks import DOUBLE_TASK, extension

pytestmark = pytest.mark.integration

_BLANKS = (" ", "  ", "\t", "\r", " \r", "\f", "\v", "\u00a0", "\u2003", "\ufeff")
_KERNEL = """__global__ void k(int* out) {{
  constexpr char a[] = R"({0}
{1})";
  const char b[] = "{2}"; // a comment{3}
  out[threadIdx.x] = sizeof(a) * 1000 + sizeof(b){4};{5}
}}
"""


def _pair(rng: random.Random) -> tuple[str, str]:
    """A source, and the same with blanks somewhere."""
    plain = [rng.choice(("", "x", "y z", "\u00e9", "#")) for _ in range(2)]
    plain += [rng.choice(("s", "//", "/*")), "", "", ""]
    blanks = list(plain)
    for place in rng.sample(range(6), rng.randint(1, 3)):
        blanks[place] += rng.choice(_BLANKS[:2] if place == 4 else _BLANKS)
    return _KERNEL.format(*plain), _KERNEL.format(*blanks)


def _by_nvcc(compiler: CUDACompiler, source: str, folder: Path) -> str | None:
    """Digest of what nvcc itself makes of a file of these bytes; None where it refuses them."""
    (folder / "plain.cu").write_bytes(source.encode())
    nvcc = compiler.toolkit.root / "bin" / "nvcc"
    command = [nvcc, "-std=c++17", f"-arch=sm_{compiler.architecture}", "-ptx", "plain.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return ptx_digest((folder / "plain.ptx").read_bytes().decode()) if not done.returncode else None


def _check(compiler: CUDACompiler, pairs: int, folder: Path) -> int:
    """How many of the pairs differ in what they store."""
    rng, different = random.Random(76), 0
    for _ in range(pairs):
        plain, blanks = _pair(rng)
        found = [compiler.compile_source(source) for source in (plain, blanks)]
        expected = [_by_nvcc(compiler, source, folder) for source in (plain, blanks)]
        assert [f.ptx_sha256 or None for f in found] == expected, (plain, blanks)
        assert found[0].digest != found[1].digest
        different += expected[0] != expected[1]
    return different


def test_a_build_is_what_nvcc_makes_of_the_same_bytes(
    compiler: CUDACompiler, tmp_path: Path
) -> None:
    assert _check(compiler, 4, tmp_path) >= 1


@pytest.mark.slow
@pytest.mark.timeout(7000)
def test_a_thousand_builds_are_what_nvcc_makes_of_the_same_bytes(
    compiler: CUDACompiler, tmp_path: Path
) -> None:
    assert _check(compiler, 500, tmp_path) >= 100


def test_blanks_in_a_raw_string_decide_the_verdict_as_they_decide_the_answer(judge: Judge) -> None:
    def doubles(blanks: str) -> Candidate:
        kernel = f"""__global__ void k(const float* x, float* o, int n) {{
  constexpr char m[] = R"(x{blanks}
)";
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * (sizeof(m) == 3 ? 2.0f : 3.0f) + 1.0f;
}}"""
        return Candidate(code=extension(kernel, "k<<<(n + 127) / 128, 128>>>(px, po, n);"))

    right, wrong = (judge.judge(DOUBLE_TASK, doubles(blanks)) for blanks in ("", "  "))
    assert (right.status, wrong.status) == (Status.CORRECT, Status.WRONG_OUTPUT)


def test_a_file_that_is_not_utf_8_keeps_its_bytes(compiler: CUDACompiler, tmp_path: Path) -> None:
    file = tmp_path / "latin.cu"
    file.write_bytes(_KERNEL.format("", "", "s", "", "", "").encode() + b"// caf\xe9, \xff\n")
    code = read_kernel(str(file))
    assert Candidate(code=code).sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert compiler.compile_source(code).success
    file.write_bytes(file.read_bytes().replace(b"caf\xe9", b"caf\xe8"))
    assert compiler.address(read_kernel(str(file))) != compiler.address(code)


def test_to_the_emulator_as_to_ptxas_a_carriage_return_ends_no_comment(
    compiler: CUDACompiler,
) -> None:
    source = '__global__ void k() { asm volatile("// c\\r no instruction;\\n"); }\n'
    built = compiler.compile_source(source)
    assert built.success
    assert "// c\r no instruction;" in ptx_of(Path(str(built.binary_path)))


def test_a_path_that_looks_like_a_comment_hides_no_instruction() -> None:
    ptx = '.file 1 "a/*b"\nloop:\nbra loop;\n.file 2 "*/ //c"\n'
    assert may_repeat(ptx)

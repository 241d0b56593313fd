"""Every opcode family that is lowered to something has a case in these tests."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from coding_framework.cuda.emulator.lowering import _LOWERERS
from coding_framework.cuda.plan.launch_plan import CandidateFault
from support.emulator_harness import KERNELS, Gpu, ptx_of

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
_OPCODE = re.compile(r"^\s*(?:\{\s*)?(?:@!?%p\d+\s+)?([a-z]\w*)[\w.:]*[\s;]", re.MULTILINE)


@pytest.mark.ci
def test_every_family_with_a_lowering_is_run_by_some_test() -> None:
    """In what nvcc made of the tests' kernels, or in PTX that a test writes out; arithmetic has
    test_every_form.py."""
    text = "".join(
        ptx_of(file.name, arch)
        for file in sorted(KERNELS.glob("*.cu"))
        for arch in ("sm_80", "sm_90", "sm_100")
    )
    compiled = set(_OPCODE.findall(text))
    others = [p.read_text() for p in HERE.glob("test_*.py")]
    written = {head for head in _LOWERERS if re.search(rf"\b{head}[.;]", "".join(others))}
    assert set(_LOWERERS) - compiled - written == set()


def kernel(*lines: str) -> Gpu:
    return Gpu(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n"
        ".reg .pred %p<5>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.shared .align 4 .b8 s[4];\n"
        ".local .align 4 .b8 l[4];\nld.param.u64 %rd1, [a];\n" + "\n".join(lines) + "\nret;\n}\n"
    )


@pytest.mark.parametrize(
    ("operation", "kind", "expected"),
    [
        ("add", "u32", 8 + sum(range(32))), ("min", "s32", 0), ("max", "u32", 31),
        ("and", "b32", 0), ("or", "b32", 31), ("xor", "b32", 8), ("inc", "u32", 0),
    ],
)  # fmt: skip
def test_reductions_without_a_result(operation: str, kind: str, expected: int) -> None:
    """Thread i gives i; the word held 8. inc by 0 wraps to 0 at once, and by i > 7 goes on."""
    gpu = kernel("mov.u32 %r1, %tid.x;", f"red.global.{operation}.{kind} [%rd1], %r1;")
    a = gpu.put(np.full(1, 8, np.uint32))
    gpu.run("k", 1, 32, a)
    got = int(gpu.get(a, 1, np.uint32)[0])
    if operation == "inc":
        word = 8
        for i in range(32):
            word = 0 if word >= i else word + 1
        expected = word
    assert got == expected


def test_uniform_loads_and_fences() -> None:
    gpu = kernel(
        *("ldu.global.u32 %r1, [%rd1];", "fence.sc.gpu;", "fence.acq_rel.sys;", "membar.gl;"),
        *("add.u32 %r1, %r1, 1;", "st.global.u32 [%rd1+4], %r1;"),
    )
    a = gpu.put(np.array([41, 0], np.int32))
    gpu.run("k", 1, 32, a)
    assert gpu.get(a, 2, np.int32).tolist() == [41, 42]


def test_an_address_is_in_one_space() -> None:
    """Generic addresses of global, shared and local memory against each of the spaces."""
    lines = ["cvta.shared.u64 %rd2, s;", "cvta.local.u64 %rd3, l;"]
    at = 0
    for address in ("%rd1", "%rd2", "%rd3"):
        for space in ("global", "shared", "local"):
            lines += [f"isspacep.{space} %p1, {address};", "selp.u32 %r1, 1, 0, %p1;",
                      f"st.global.u32 [%rd1+{at}], %r1;"]  # fmt: skip
            at += 4
    gpu = kernel(*lines)
    a = gpu.empty(36)
    gpu.run("k", 1, 1, a)
    assert np.array_equal(gpu.get(a, (3, 3), np.int32), np.eye(3))


def test_hints_change_nothing() -> None:
    hints = (
        "nanosleep.u32 100;",
        "prefetch.global.L2 [%rd1];",
        "prefetchu.L1 [%rd1];",
        "createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0;",
    )
    store = "st.global.L2::cache_hint.u32 [%rd1], %r1, %rd2;"
    gpu = kernel(*hints, "mov.u32 %r1, 7;", store)
    a = gpu.put(np.zeros(1, np.int32))
    gpu.run("k", 1, 32, a)
    assert gpu.get(a, 1, np.int32)[0] == 7


def test_a_breakpoint_ends_the_kernel_as_a_trap_does() -> None:
    with pytest.raises(CandidateFault, match="trap executed"):
        kernel("brkpt;").run("k", 1, 32, 0)

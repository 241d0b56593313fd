"""What the parser makes of PTX, and where the control flow says that threads meet."""

from __future__ import annotations

import pytest

from coding_framework.cuda.emulator.control_flow import EXIT, analyse
from coding_framework.cuda.emulator.faults import readable
from coding_framework.cuda.emulator.parser import parse
from coding_framework.cuda.emulator.program import Address, Immediate, Pair, Register, Vector
from coding_framework.cuda.plan.launch_plan import CandidateFault
from support.emulator_harness import compile_ptx, ptx_of

pytestmark = pytest.mark.unit
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def body(text: str) -> str:
    return (
        f"{HEAD}.visible .entry k(.param .u64 p) {{\n.reg .pred %p<9>; .reg .b32 %r<9>;\n{text}\n}}"
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("file", ["basic.cu", "honest.cu", "faulty.cu", "half.cu", "matrix.cu"])
def test_what_nvcc_emits_is_parsed(file: str, arch: str) -> None:
    module = parse(ptx_of(file, arch))
    assert module.target.startswith("sm_")
    assert sum(f.is_entry for f in module.functions.values()) >= 8


def test_operands_of_every_kind() -> None:
    module = parse(body("""
        setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;
        ld.global.v2.u32 {%r1, _}, [%r2+-16];
        mov.f32 %r1, 0f3F800000;
        mov.b32 %r1, 0x7fU;
        @!%p1 ret;
    """))  # fmt: skip
    setp, load, real, hexadecimal, leave = module.functions["k"].instructions
    assert isinstance(setp.operands[0], Pair)
    assert setp.operands[2] == Immediate(-5)
    assert isinstance(load.operands[0], Vector)
    assert isinstance(load.operands[1], Address) and load.operands[1].offset == -16  # noqa: PT018
    assert real.operands[1] == Immediate(0x3F800000, "f32")
    assert hexadecimal.operands[1] == Immediate(127)
    assert leave.guard_negated
    assert isinstance(leave.guard, Register)


def test_inner_scopes_hide_outer_names() -> None:
    module = parse(body("""
        .reg .b32 t; mov.u32 t, 1;
        { .reg .b64 t; mov.u64 t, 2; L: bra L; }
        { L: mov.u32 t, 3; bra L; }
    """))  # fmt: skip
    code = module.functions["k"].instructions
    assert code[0].operands[0] is code[3].operands[0]
    assert code[1].operands[0] is not code[0].operands[0]
    assert (code[2].targets, code[4].targets) == ((2,), (3,))


def test_lines_are_those_of_the_candidates_file_also_in_inlined_headers() -> None:
    source = (
        "#include <cuda_fp16.h>\n__global__ void k(__half *a) {\n  a[0] =\n    hexp(a[1]);\n}\n"
    )
    module = parse(compile_ptx(source))
    lines = {i.line for f in module.functions.values() for i in f.instructions if i.line}
    assert lines <= {2, 3, 4, 5}
    assert lines & {3, 4}


def test_initialisers_of_numbers_and_addresses() -> None:
    text = HEAD + ".global .align 8 .u64 a[2] = {generic(b)+4, 7};\n.global .b32 b[2] = {1, -1};\n"
    variables = parse(text).variables
    assert [(v.bits, v.symbol) for v in variables["a"].initial] == [(4, "b"), (7, None)]
    assert variables["b"].nbytes == 8


def test_both_sides_of_a_branch_meet_behind_it() -> None:
    flow = analyse(parse(body("""
        @%p1 bra B; mov.u32 %r1, 1; bra C;
        B: mov.u32 %r1, 2;
        C: mov.u32 %r2, 3; mov.u32 %r3, 4; ret;
    """)).functions["k"])  # fmt: skip
    assert [b.join for b in flow.blocks] == [3, 3, 3, EXIT]
    assert flow.joins == {3}


def test_a_loop_is_left_together() -> None:
    flow = analyse(parse(body("""
        mov.u32 %r1, 0; A: add.s32 %r1, %r1, 1; @%p1 bra A; mov.u32 %r2, 1; ret;
    """)).functions["k"])  # fmt: skip
    assert flow.blocks[1].join == 2
    assert set(flow.blocks[1].successors) == {1, 2}


def test_a_branch_to_a_return_ends_its_threads() -> None:
    flow = analyse(parse(body("""
        @%p1 bra OUT; mov.u32 %r1, 1; bar.sync 0; OUT: ret;
    """)).functions["k"])  # fmt: skip
    assert set(flow.blocks[0].successors) == {EXIT, 1}
    assert flow.blocks[1].reaches_barrier


def test_twenty_thousand_blocks_are_analysed_quickly() -> None:
    text = "".join(f"@%p1 bra L{n}; mov.u32 %r1, {n}; L{n}:\n" for n in range(10_000))
    flow = analyse(parse(body(text + "mov.u32 %r2, 0; ret;")).functions["k"])
    assert len(flow.blocks) == 20_001
    assert flow.blocks[0].join == 2


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [("_Z4vaddPfi", "vadd"), ("_ZN2ns3addIfEEvPT_", "add"), ("plain", "plain"),
     ("_ZN12_GLOBAL__N_13addEv", "add"), ("_Z", "_Z")],
)  # fmt: skip
def test_names_are_shown_without_mangling(mangled: str, plain: str) -> None:
    assert readable(mangled) == plain


def test_errors_name_the_line_of_the_ptx() -> None:
    with pytest.raises(CandidateFault, match=r"surprise.*line 7"):
        parse(body("\n.surprise;"))

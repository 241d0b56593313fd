"""PTX that wants to harm: each ends as a named refusal or a fault, quickly."""

from __future__ import annotations

import pytest

from coding_framework.cuda.emulator.parser import parse
from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status
from support.emulator_harness import Gpu

pytestmark = pytest.mark.unit
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def kernel(body: str, before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k(.param .u64 p)\n{{\n{body}\nret;\n}}\n"


def outcome(text: str, **settings: object) -> CandidateFault:
    def load_and_run() -> None:
        gpu = Gpu(text, **settings)
        gpu.run("k", 1, 32, gpu.empty(4096))

    with pytest.raises(CandidateFault) as caught:
        load_and_run()
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "garbage \x01",
        ".version 9.0",
        "{" * 100_000,
        kernel(".reg .b32 %r<5>; add.s32 %r1, %r2, %r9;"),
        kernel(".reg .b32 %r<5>; add.s32 %r1, %r2;"),
        kernel(".reg .b32 %r<5>; add.s32 %r1, %r2, [%r3];"),
        kernel(".reg .b32 %r<5>; frobnicate.b32 %r1, %r2;"),
        kernel(".reg .b32 %r<5>; add.foo.s32 %r1, %r2, %r3;"),
        kernel("bra NOWHERE;"),
        kernel("{" * 300 + "}" * 300),
        kernel(".reg .b128 %r<5>; mov.b128 %r1, %r2;"),
        kernel(".local .b8 big[999999999999999];"),
        kernel(".local .align 16 .b8 big[1000000]; .reg .b64 %r<2>; mov.u64 %r1, big;"),
        kernel(".reg .b64 %r<3>; ld.param.u64 %r1, [p+8];"),
        kernel(".reg .b64 %r<3>; ld.param.u64 %r1, [p-8];"),
        kernel(".reg .b64 %r<3>; st.param.u64 [p], %r1;"),
        kernel(".reg .b64 %r<3>; mov.u64 %r1, unknown; st.global.u64 [%r1], %r1;"),
        kernel(".reg .b32 %r<3>; mov.u32 %r1, %unknown_special;"),
        kernel(".reg .b32 %r<3>; mov.u32 %r1, %cluster_ctarank;"),
        kernel("call.uni nothing;"),
        kernel(".reg .b32 %r<3>; mov.u32 %r1, 0x" + "f" * 200 + ";"),
        HEAD + ".global .align 8 .u64 g = unknown;\n" + kernel("")[len(HEAD) :],
        HEAD + ".global .align 3 .b8 g[4];\n" + kernel("")[len(HEAD) :],
        HEAD + ".global .b32 g[2] = {1,2,3};\n" + kernel("")[len(HEAD) :],
        HEAD + "{" * 5000,
        HEAD + ".global .b32 g[1] = " + "{" * 50_000 + "}" * 50_000 + ";",
    ],
)
def test_malformed_modules_are_refused_by_name(text: str) -> None:
    try:
        got = outcome(text)
    except RecursionError:
        return  # the device process answers `memory_limit` for it
    except KeyError:
        pytest.skip("the module has no kernel k")
    assert got.status in (Status.UNSUPPORTED, Status.LOAD_ERROR, Status.MEMORY_LIMIT)


def test_a_billion_declared_registers_cost_nothing() -> None:
    text = kernel(".reg .b32 %r<1000000000>; mov.u32 %r999999999, 5;")
    Gpu(text).run("k", 1, 32, 0)


def test_more_live_registers_than_memory_allows_are_refused() -> None:
    moves = "\n".join(f"mov.u64 %r{i}, %r{i + 1};" for i in range(20_000))
    got = outcome(kernel(f".reg .b64 %r<30000>;\n{moves}"))
    assert got.status is Status.MEMORY_LIMIT
    assert "registers" in got.reason


def test_giant_module_variables_hit_the_memory_limit() -> None:
    before = "\n".join(f".global .align 8 .b8 g{i}[2000000000];" for i in range(8))
    got = outcome(kernel("", before))
    assert got.status is Status.MEMORY_LIMIT


def test_giant_static_shared_memory_is_an_invalid_launch() -> None:
    got = outcome(kernel(".shared .align 4 .b8 s[2000000000]; .reg .b32 %r<2>; mov.u32 %r1, s;"))
    assert got.status is Status.RUNTIME_ERROR
    assert "shared memory" in got.reason


def test_an_absurd_grid_ends_by_the_budget() -> None:
    gpu = Gpu(kernel(".reg .b32 %r<2>; mov.u32 %r1, 1;"), instruction_budget=100_000)
    with pytest.raises(CandidateFault) as caught:
        gpu.run("k", (2**31 - 1, 65535, 65535), 1024, 0)
    assert caught.value.status is Status.TIMEOUT


def test_a_branch_table_checks_its_index() -> None:
    body = """
    .reg .b32 %r<3>; .reg .b64 %d<3>;
    ld.param.u64 %d1, [p]; ld.global.u32 %r1, [%d1];
    TABLE: .branchtargets A, B, C;
    brx.idx %r1, TABLE;
    A: st.global.u32 [%d1+4], 10; bra END;
    B: st.global.u32 [%d1+4], 11; bra END;
    C: st.global.u32 [%d1+4], 12;
    END:
    """
    import numpy as np

    gpu = Gpu(kernel(body.replace("], 1", "], %r2").replace("%r20;", "%r1;")
                     .replace("%r21;", "%r1;").replace("%r22;", "%r1;")))  # fmt: skip
    for index in (0, 1, 2):
        p = gpu.put(np.array([index, 99], np.uint32))
        gpu.run("k", 1, 32, p)
        assert gpu.get(p, 2, np.uint32)[1] == index
    with pytest.raises(CandidateFault) as caught:
        gpu.run("k", 1, 32, gpu.put(np.array([3, 0], np.uint32)))
    assert caught.value.status is Status.RUNTIME_ERROR


def test_a_jump_table_splits_a_warp_and_joins_it() -> None:
    body = """
    .reg .b32 %r<9>; .reg .b64 %d<5>;
    ld.param.u64 %d1, [p]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3;
    TABLE: .branchtargets A, B, C, A;
    brx.idx %r2, TABLE;
    A: mov.u32 %r3, 100; bra END;
    B: mov.u32 %r3, 200; bra END;
    C: mov.u32 %r3, 300;
    END:
    shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
    mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2; st.global.u32 [%d1], %r4;
    """
    import numpy as np

    gpu = Gpu(kernel(body))
    p = gpu.empty(128)
    gpu.run("k", 1, 32, p)
    t = np.arange(32) ^ 1
    assert np.array_equal(gpu.get(p, 32, np.uint32), np.array([100, 200, 300, 100])[t & 3])


def test_an_indirect_call_to_data_is_a_fault() -> None:
    body = """
    .reg .b64 %d<3>; ld.param.u64 %d1, [p];
    P : .callprototype () _ ();
    call %d1, P;
    """
    before = ".func f() { ret; }"
    got = outcome(kernel(body, before))
    assert got.status is Status.RUNTIME_ERROR


def test_shared_addresses_do_not_wrap() -> None:
    body = """
    .shared .align 4 .b8 s[64]; .reg .b32 %r<3>; .reg .b64 %d<3>;
    mov.u32 %r1, s; mov.u64 %d1, 4294967296; st.shared.u32 [%d1], %r1;
    """
    got = outcome(kernel(body))
    assert got.status is Status.RUNTIME_ERROR
    assert "shared" in got.reason


def test_names_of_special_registers_and_scopes_do_not_leak() -> None:
    module = parse(kernel("{ .reg .b32 t; mov.u32 t, 1; } { .reg .b64 t; mov.u64 t, 2; }"))
    first, second, _ = module.functions["k"].instructions
    assert first.operands[0] is not second.operands[0]

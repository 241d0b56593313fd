"""Plans are compared without addresses: no false accusation, no missed dependence."""

from __future__ import annotations

import struct

import pytest

from coding_framework.cuda.plan.difference import (
    PlanReader,
    adds_atomically,
    host_share,
    leaked_bytes,
    steering_excess,
)
from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    KernelInfo,
    Launch,
    LaunchPlan,
    ModuleInfo,
    PlanOp,
    ReadBack,
    TensorRef,
    Upload,
)

pytestmark = pytest.mark.unit

X, OUT_1, OUT_2, WORKSPACE = 0x1000, 0x9000, 0xB000, 0xD000
MODULE = ModuleInfo(
    {
        "k": KernelInfo("k", (0, 8, 16), (8, 8, 4), 0),
        "init": KernelInfo("init", (0,), (8,), 0),
    },
    {},
)


def _k(x: int, out: int, n: int = 64, grid: int = 1) -> Launch:
    return Launch("k", (grid, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", x, out, n))


def _plan(*ops: PlanOp) -> LaunchPlan:
    return LaunchPlan((), ops, ())


def _difference(first: LaunchPlan, second: LaunchPlan):  # type: ignore[no-untyped-def]
    blocks = {OUT_1: 256, OUT_2: 256, WORKSPACE: 1024}
    return PlanReader(MODULE, [(X, 256, 0)], blocks).difference(first, second)


def test_another_address_of_the_output_is_no_difference() -> None:
    assert _difference(_plan(_k(X, OUT_1)), _plan(_k(X, OUT_2))) is None


def test_a_workspace_kept_from_the_first_call_is_no_difference() -> None:
    first = _plan(_k(X, WORKSPACE), _k(WORKSPACE, OUT_1))
    assert _difference(first, _plan(_k(X, WORKSPACE), _k(WORKSPACE, OUT_2))) is None


def test_buffers_in_another_role_are_a_difference() -> None:
    assert _difference(_plan(_k(X, OUT_1)), _plan(_k(OUT_1, X))) is not None


def test_another_value_grid_or_number_of_launches_is_a_difference() -> None:
    base = _plan(_k(X, OUT_1))
    assert "second" in _difference(base, _plan(_k(X, OUT_1, n=63))).message
    assert _difference(base, _plan(_k(X, OUT_1, grid=2))) is not None
    assert _difference(base, _plan(_k(X, OUT_1), _k(X, OUT_1))) is not None
    assert not _difference(base, _plan()).one_time_setup


def test_launches_left_out_that_saw_no_input_are_a_set_up() -> None:
    init = Launch("init", (1, 1, 1), (64, 1, 1), 0, struct.pack("<Q", WORKSPACE))
    found = _difference(_plan(init, _k(X, OUT_1)), _plan(_k(X, OUT_2)))
    assert found is not None
    assert found.one_time_setup


def test_other_bytes_uploaded_are_a_difference_and_a_table_made_once_is_not() -> None:
    table = Upload(WORKSPACE, b"table")
    launch = _k(X, OUT_1)
    assert _difference(_plan(table, launch), _plan(launch)) is None
    found = _difference(_plan(table, launch), _plan(Upload(WORKSPACE, b"other"), launch))
    assert "other bytes" in found.message


def test_a_little_read_back_may_steer_and_much_may_not() -> None:
    assert host_share(_plan(ReadBack(X, 4)), 60) is None
    assert host_share(_plan(ReadBack(X, 4096)), 1 << 20) is None
    assert "computes on the host" in str(host_share(_plan(ReadBack(X, 60)), 60))
    pieces = tuple(ReadBack(X, 16) for _ in range(100))
    assert host_share(_plan(*pieces), 4096) is not None


def test_a_few_changed_words_steer_and_many_carry_an_answer() -> None:
    first = _plan(*(_k(X, OUT_1, n=1) for _ in range(20)))
    one = _difference(first, _plan(_k(X, OUT_1, n=2), *(_k(X, OUT_1, n=1) for _ in range(19))))
    assert one.changed_bytes == 8
    assert steering_excess(one) is None
    all_ = _difference(first, _plan(*(_k(X, OUT_1, n=i + 2) for i in range(20))))
    assert "computes on the host" in str(steering_excess(all_))


def test_bytes_that_depend_on_inputs_may_not_go_into_the_output() -> None:
    launch, out = _k(X, OUT_1), (TensorRef(OUT_1, (64,), (1,), "float32"),)
    first = LaunchPlan((), (launch, Upload(OUT_1 + 8, b"abcd")), out)
    second = LaunchPlan((), (launch, Upload(OUT_1 + 8, b"efgh")), out)
    assert "into its output" in str(steering_excess(_difference(first, second)))
    scratch = _difference(_plan(Upload(WORKSPACE, b"abcd")), _plan(Upload(WORKSPACE, b"efgh")))
    assert steering_excess(scratch) is None
    table = _difference(_plan(Upload(WORKSPACE, b"a" * 65)), _plan(Upload(WORKSPACE, b"b" * 65)))
    assert steering_excess(table) is not None


def test_launches_that_only_one_call_makes_carry_what_they_say_anew() -> None:
    first = _plan(_k(X, OUT_1))
    again = _difference(first, _plan(*(_k(X, OUT_1) for _ in range(40))))
    assert steering_excess(again) is None  # a loop that ends later says nothing new
    carrying = _difference(first, _plan(*(_k(X, OUT_1, n=i) for i in range(70, 90))))
    assert "computes on the host" in str(steering_excess(carrying))


def test_fills_and_copies_that_depend_on_inputs_are_a_channel_too() -> None:
    out = (TensorRef(OUT_1, (64,), (1,), "float32"),)

    def call(n: int, *ops: PlanOp) -> LaunchPlan:
        return LaunchPlan((), (_k(X, OUT_1, n), *ops), out)

    zeroed = Fill(WORKSPACE, 0, 64)
    assert steering_excess(_difference(call(1, zeroed), call(2, zeroed))) is None
    filled = _difference(call(1, Fill(OUT_1, 3, 1)), call(2, Fill(OUT_1, 4, 1)))
    assert "into its output" in str(steering_excess(filled))
    chosen = (Copy(OUT_1 + i, WORKSPACE + 7 * i, 1) for i in range(9))
    assert "computes on the host" in str(steering_excess(_difference(call(1), call(2, *chosen))))


def test_memory_that_is_neither_freed_nor_returned_has_leaked() -> None:
    out = (TensorRef(OUT_2, (4,), (1,), "float32"),)
    allocations = (Alloc(OUT_1, 256), Alloc(OUT_2, 256), Alloc(WORKSPACE, 1024))
    assert leaked_bytes(LaunchPlan((), (*allocations, Free(OUT_1)), out)) == 1024
    assert leaked_bytes(LaunchPlan((), (*allocations, Free(OUT_1), Free(WORKSPACE)), out)) == 0


@pytest.mark.parametrize(
    ("line", "adds"),
    [
        ("\tatom.global.add.f32 \t%f4, [%rd1], %f3;", True),
        ("\tred.global.add.f32 [%rd1], %f3;", True),
        ("\tred.relaxed.gpu.global.add.noftz.f16x2 [%rd1], %r3;", True),
        ("\t@%p1 atom.shared.add.f64 %fd1, [%r1], %fd2;", True),
        ("\tatom.global.cas.b32 %r1, [%rd1], %r2, %r3;", True),
        ("\tld.volatile.global.f32 %f1, [%rd1];", True),
        ("\tld.global.f32 %f1, [%rd1];", False),
        ("\tatom.global.add.u32 %r1, [%rd1], 1;", False),
        ("\tatom.global.max.s32 %r1, [%rd1], 1;", False),
        ("\tadd.f32 %f1, %f2, %f3; // atom.global.add.f32", False),
    ],
)
def test_floating_atomics_are_seen_in_ptx(line: str, adds: bool) -> None:
    assert adds_atomically(f"// .add\n{line}\n") is adds

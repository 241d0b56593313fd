"""What two records of one call at other addresses tell."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    KernelInfo,
    Launch,
    ModuleInfo,
    PlanOp,
    ReadBack,
    TensorRef,
    Upload,
)
from coding_framework.cuda.templating.derive import DerivedSteps, NotPortable, derive
from coding_framework.cuda.templating.recording import Recording, ScatteredPaper
from coding_framework.registry.templates import LaunchStep, UploadStep

pytestmark = pytest.mark.unit

KERNEL = KernelInfo("k", (0, 8, 16), (8, 8, 8), 0)
MODULE = ModuleInfo({"k": KERNEL}, {})
NBYTES = 64
Ops = Callable[[int, int, ScatteredPaper], list[PlanOp]]


def _launch(*words: int) -> Launch:
    return Launch("k", (1, 1, 1), (32, 1, 1), 0, struct.pack(f"<{len(words)}Q", *words))


def _derived(
    ops: Ops, *, output: int | None = None, unread: dict[int, frozenset[int]] | None = None
) -> DerivedSteps:
    """Of a call with one input; ops: of its address, that of a block, and paper for more. output:
    offset in the block of what is returned; None: its start."""
    recordings = []
    for seed in range(3):
        paper = ScatteredPaper(seed)
        x, block = paper.alloc(NBYTES), paper.alloc(NBYTES)
        recordings.append(
            Recording(
                (Alloc(block, NBYTES), *ops(x, block, paper)),
                (TensorRef(block + (output or 0), (4,), (1,), "float32"),),
                (TensorRef(x, (16,), (1,), "float32"),),
                {"table": (paper.alloc(32), 32)},
                ((paper.alloc(128), 128),),
            )
        )
    return derive(recordings, MODULE, {"k": unread} if unread else {})


def test_pointers_become_relocations_and_numbers_stay() -> None:
    steps = _derived(lambda x, o, _: [_launch(x + 8, o, 16)])
    (launch,) = steps.steps
    assert isinstance(launch, LaunchStep)
    assert [(r.at, r.region, r.offset) for r in launch.relocations] == [(0, 0, 8), (8, 1, 0)]
    assert launch.params == struct.pack("<3Q", 0, 0, 16)
    assert steps.outputs[0].place.region == 1


def test_a_pointer_to_the_end_of_a_region_is_that_of_the_region() -> None:
    (launch,) = _derived(lambda x, o, _: [_launch(x + NBYTES, o, 0)]).steps
    assert isinstance(launch, LaunchStep)
    assert (launch.relocations[0].region, launch.relocations[0].offset) == (0, NBYTES)


def test_a_number_that_happens_to_be_an_address_stays_a_number() -> None:
    first = ScatteredPaper(0).alloc(NBYTES)
    (launch,) = _derived(lambda x, o, _: [_launch(x, o, first)]).steps
    assert isinstance(launch, LaunchStep)
    assert len(launch.relocations) == 2
    assert launch.params[16:] == struct.pack("<Q", first)


def test_bytes_that_no_kernel_reads_may_differ() -> None:
    ops: Ops = lambda x, o, paper: [_launch(x, o, 7 | paper.alloc(1) << 4 & ~0xFF)]  # noqa: E731
    with pytest.raises(NotPortable) as found:
        _derived(ops)
    assert found.value.obstacle == "unexplained_bytes"
    _derived(ops, unread={2: frozenset(range(1, 8))})


def test_an_address_that_was_changed_is_unexplained() -> None:
    with pytest.raises(NotPortable, match="is no address itself"):
        _derived(lambda x, o, _: [_launch(x ^ 0x5555, o, 0)])


def test_pointers_in_uploaded_tables_are_relocated_and_keep_their_memory() -> None:
    def ops(x: int, o: int, paper: ScatteredPaper) -> list[PlanOp]:
        table, used = paper.alloc(16), paper.alloc(NBYTES)
        return [
            Alloc(table, 16), Alloc(used, NBYTES),
            Upload(table, struct.pack("<2Q", x, used)),
            _launch(table, o, 0), Free(used), Free(table), _launch(x, o, 0),
        ]  # fmt: skip

    steps = _derived(ops)
    upload = steps.steps[0]
    assert isinstance(upload, UploadStep)
    assert [(r.region, r.offset) for r in upload.relocations] == [(0, 0), (3, 0)]
    _, table, used = steps.allocations
    assert (table.first, table.last) == (0, 1)
    assert used.last == 2  # a kernel may still follow the pointer


def test_fills_and_copies_name_places_and_empty_ones_are_left_out() -> None:
    steps = _derived(
        lambda x, o, _: [Fill(o, 0, 16), Fill(o, 0, 0), Copy(o, x + 4, 8), _launch(x, o, 0)]
    )
    assert [step.kind for step in steps.steps] == ["fill", "copy", "launch"]


def test_memory_that_nobody_touches_is_not_allocated() -> None:
    def ops(x: int, o: int, paper: ScatteredPaper) -> list[PlanOp]:
        return [Alloc(paper.alloc(8), 8), _launch(x, o, 0)]

    assert len(_derived(ops).allocations) == 1


def test_variables_of_the_module_are_regions() -> None:
    def ops(x: int, o: int, paper: ScatteredPaper) -> list[PlanOp]:
        table = paper.alloc(32)  # as the record says, right after the block
        return [Upload(table, b"1234"), _launch(x, o, 0)]

    recordings = []
    for seed in range(2):
        paper = ScatteredPaper(seed)
        x, o, table = (paper.alloc(NBYTES) for _ in range(3))
        recordings.append(
            Recording(
                (Alloc(o, NBYTES), Upload(table + 4, b"1234"), _launch(x, o, 0)),
                (TensorRef(o, (4,), (1,), "float32"),),
                (TensorRef(x, (16,), (1,), "float32"),),
                {"table": (table, 32), "unused": (paper.alloc(8), 8)},
                (),
            )
        )
    steps = derive(recordings, MODULE, {})
    assert [v.name for v in steps.variables] == ["table"]
    upload = steps.steps[0]
    assert isinstance(upload, UploadStep)
    assert (upload.to.region, upload.to.offset) == (2, 4)


@pytest.mark.parametrize(
    ("obstacle", "ops"),
    [
        ("read_back", lambda x, o, p: [ReadBack(x, 4), _launch(x, o, 0)]),
        ("another_plan", lambda x, o, p: [_launch(x, o, 0)] * (1 + p.alloc(8) // 256 % 7)),
        ("no_launch", lambda x, o, p: [Fill(o, 0, 4)]),
        ("too_many_launches", lambda x, o, p: [_launch(x, o, 0)] * 65),
        ("writes_argument", lambda x, o, p: [Fill(x, 0, 4), _launch(x, o, 0)]),
    ],
)
def test_what_cannot_be_a_template_is_named(obstacle: str, ops: Ops) -> None:
    with pytest.raises(NotPortable) as found:
        _derived(ops)
    assert found.value.obstacle == obstacle


def test_memory_of_an_earlier_call_is_no_part_of_a_template() -> None:
    recordings = []
    for seed in range(2):
        paper = ScatteredPaper(seed)
        x, o, kept = (paper.alloc(NBYTES) for _ in range(3))
        recordings.append(
            Recording(
                (Alloc(o, NBYTES), _launch(x, o, kept)),
                (TensorRef(o, (4,), (1,), "float32"),),
                (TensorRef(x, (16,), (1,), "float32"),),
                {},
                ((kept, NBYTES),),
            )
        )
    with pytest.raises(NotPortable) as found:
        derive(recordings, MODULE, {})
    assert found.value.obstacle == "earlier_memory"


def test_an_output_in_an_input_is_refused() -> None:
    recordings = []
    for seed in range(2):
        x = ScatteredPaper(seed).alloc(NBYTES)
        ref = TensorRef(x, (16,), (1,), "float32")
        recordings.append(Recording((_launch(x, x, 0),), (ref,), (ref,), {}, ()))
    with pytest.raises(NotPortable) as found:
        derive(recordings, MODULE, {})
    assert found.value.obstacle == "returns_argument"

"""Plans as data: what comes back is what went in; memory that moved takes its pointers along."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_framework.cuda.plan.launch_plan import (
    Alloc,
    Copy,
    Fill,
    Free,
    Launch,
    PlanOp,
    ReadBack,
    Upload,
)
from coding_framework.cuda.plan.plan_data import moved_ops, ops_as_data, ops_from_data

pytestmark = pytest.mark.unit

ADDRESS = st.integers(0, 2**48)
SIZE = st.integers(0, 2**32)
EXTENT = st.tuples(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 64))
OPS: st.SearchStrategy[PlanOp] = st.one_of(
    st.builds(Alloc, ADDRESS, SIZE),
    st.builds(Free, ADDRESS),
    st.builds(Upload, ADDRESS, st.binary(max_size=64)),
    st.builds(Copy, ADDRESS, ADDRESS, SIZE),
    st.builds(Copy, ADDRESS, ADDRESS, SIZE, st.tuples(st.integers(1, 8), EXTENT, EXTENT)),
    st.builds(Fill, ADDRESS, st.integers(0, 255), SIZE),
    st.builds(ReadBack, ADDRESS, SIZE),
    st.builds(
        Launch,
        st.text(min_size=1, max_size=20),
        EXTENT,
        EXTENT,
        SIZE,
        st.binary(max_size=64),
        st.integers(0, 2**64 - 1),
        st.booleans(),
    ),
)


@given(st.lists(OPS, max_size=20))
def test_a_plan_survives_the_wire(ops: list[PlanOp]) -> None:
    rows, blob = ops_as_data(ops)
    assert list(ops_from_data(json.loads(json.dumps(rows)), blob)) == ops


def test_an_operation_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown plan operation"):
        ops_from_data([["format", 1]], b"")


def test_pointers_into_memory_that_moved_move_along() -> None:
    params = struct.pack("<QQi", 0x1010, 0x9000, 7)
    ops = (
        Launch("k", (1, 1, 1), (32, 1, 1), 0, params),
        Upload(0x1000, b"abc"),
        Copy(0x9000, 0x1008, 4),
        Fill(0x1020, 0, 4),
    )
    moved = moved_ops(ops, {(0x1000, 0x20): 0x5000})
    launch, upload, copy, fill = moved
    assert isinstance(launch, Launch)
    assert struct.unpack("<QQi", launch.params) == (0x5010, 0x9000, 7)
    assert upload == Upload(0x5000, b"abc")
    assert copy == Copy(0x9000, 0x5008, 4)
    assert fill == Fill(0x1020, 0, 4)  # just behind the region
    assert moved_ops(ops, {(0x1000, 0x20): 0x1000}) == ops

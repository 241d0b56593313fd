"""Memory that moved takes the pointers of a plan along."""

from __future__ import annotations

import struct

import pytest

from coding_framework.cuda.plan.launch_plan import Copy, Fill, Launch, Upload
from coding_framework.cuda.plan.moved import moved_ops

pytestmark = pytest.mark.unit


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

"""What a host passes on as it read it steers; what it makes of many bytes is an answer."""

from __future__ import annotations

import struct

import pytest

from coding_framework.cuda.plan.host_values import finished_on_host
from coding_framework.cuda.plan.launch_plan import (
    Fill,
    Launch,
    LaunchPlan,
    PlanOp,
    ReadBack,
    Upload,
)

pytestmark = pytest.mark.unit

PARTS = (0.25, 1.5, -3.0, 7.125)
READ = ReadBack(4096, 16, struct.pack("<4f", *PARTS))


def _plan(*ops: PlanOp) -> LaunchPlan:
    return LaunchPlan((), ops, ())


def _launch(params: bytes) -> Launch:
    return Launch("k", (1, 1, 1), (32, 1, 1), 0, params)


def _words(launch: Launch) -> list[bytes]:
    step = 8 if len(launch.params) % 8 == 0 else 4
    return [launch.params[i : i + step] for i in range(0, len(launch.params), step)]


def _finished(*ops: PlanOp, read: ReadBack = READ) -> str | None:
    return finished_on_host(_plan(read, _launch(b"\1\0\0\0")), _plan(read, *ops), _words)


@pytest.mark.parametrize(
    "params",
    [
        struct.pack("<f", PARTS[2]),
        struct.pack("<d", PARTS[1]),
        struct.pack("<i", 12),
        struct.pack("<q", -3),
        struct.pack("<2f", PARTS[0], PARTS[3]),
        struct.pack("<fi", PARTS[0], 7),
    ],
)
def test_numbers_as_they_were_read_and_small_whole_ones_steer(params: bytes) -> None:
    assert _finished(_launch(params)) is None


@pytest.mark.parametrize(
    "op",
    [
        _launch(struct.pack("<f", sum(PARTS))),
        _launch(struct.pack("<d", sum(PARTS))),
        _launch(struct.pack("<q", int(sum(PARTS) * 10**12))),
        Upload(8192, struct.pack("<f", sum(PARTS))),
        Fill(8192, 0x41, 1),
    ],
)
def test_a_sum_of_what_was_read_is_an_answer(op: PlanOp) -> None:
    assert "computes on the host" in str(_finished(op))


def test_a_few_bytes_may_become_a_number() -> None:
    scale = _launch(struct.pack("<f", 1 / (PARTS[1] - PARTS[0])))
    few = ReadBack(4096, 8, struct.pack("<2f", *PARTS[:2]))
    assert _finished(scale, read=few) is None


def test_what_the_first_plan_said_already_depends_on_nothing() -> None:
    launch = _launch(struct.pack("<f", 0.1))
    assert finished_on_host(_plan(READ, launch), _plan(READ, launch), _words) is None

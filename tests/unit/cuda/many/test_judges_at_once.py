"""How many judges share the GPUs: as many as their memory holds, beside the largest work."""

from __future__ import annotations

import math

import pytest

from coding_framework.cuda.device.gpu_sharing import parse_gpus
from coding_framework.cuda.gpu.memory_need import roughly_needed_bytes
from coding_framework.cuda.many import pool
from support.judge_tasks import make_task

pytestmark = pytest.mark.unit
H100 = "0, GPU-a, NVIDIA H100, 81559, 580\n"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("gpus", "largest", "expected"),
    [
        (H100, 0, 9),  # rooms of 8 GiB
        (H100, 8 * GIB, 9),
        (H100, 54 * GIB, 9),  # eight that wait keep 12 GiB
        (H100, 72 * GIB, 6),
        (H100, 100 * GIB, 1),  # whatever it takes: one tries
        (H100 + H100.replace("0, GPU-a", "1, GPU-b"), 72 * GIB, 12),
        ("", 0, 1),
    ],
)
def test_those_that_wait_leave_room_for_the_largest_work(
    gpus: str, largest: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "gpus", lambda: parse_gpus(gpus))
    assert pool.judges_at_once(32, "cuda", largest) == expected
    assert pool.judges_at_once(32, "emulator", largest) == 32


def test_a_tasks_need_is_told_without_running_its_code() -> None:
    task = make_task("relu", "undefined(x)")
    assert roughly_needed_bytes(task) == 0  # it has no shape set of real size
    large = task.cases[0].model_copy(update={"name": "gpu main"})
    told = roughly_needed_bytes(task.model_copy(update={"gpu_cases": (large,)}))
    assert told == 144 * math.prod(large.inputs[0].shape)

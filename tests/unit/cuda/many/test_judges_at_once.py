"""How many judges share the GPUs, and what takes too much memory to be judged beside others."""

from __future__ import annotations

import math

import pytest

from coding_framework.cuda.device.gpu_sharing import parse_gpus
from coding_framework.cuda.device.rough_need import roughly_needed_bytes
from coding_framework.cuda.many import pool
from support.judge_tasks import make_task

pytestmark = pytest.mark.unit
H100 = "0, GPU-a, NVIDIA H100, 81559, 580\n"
TWO = H100 + H100.replace("0, GPU-a", "1, GPU-b")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("gpus", "judges", "beside"),
    [
        (H100, 9, 81559 / 1024 - 8 * 1.5),  # rooms of 8 GiB; eight that wait keep 12 GiB
        (TWO, 18, 81559 / 1024 - 8 * 1.5),
        ("", 1, math.inf),
    ],
)
def test_the_memory_of_the_gpus_decides(
    gpus: str, judges: int, beside: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "gpus", lambda: parse_gpus(gpus))
    assert pool.judges_at_once(32, "cuda") == judges
    assert pool.judges_at_once(32, "emulator") == 32
    assert pool.most_beside(judges) / GIB == pytest.approx(beside)


def test_a_single_judge_may_fill_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "gpus", lambda: parse_gpus(H100))
    assert pool.most_beside(1) == 81559 << 20


def test_a_tasks_need_is_told_without_running_its_code() -> None:
    task = make_task("relu", "undefined(x)")
    assert roughly_needed_bytes(task) == 0  # it has no shape set of real size
    large = task.cases[0].model_copy(update={"name": "gpu main"})
    told = roughly_needed_bytes(task.model_copy(update={"gpu_cases": (large,)}))
    assert told == 144 * math.prod(large.inputs[0].shape)

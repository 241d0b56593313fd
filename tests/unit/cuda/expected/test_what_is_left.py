"""What a judge keeps of references at real size when it is done with them."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from coding_framework.cuda.expected import reference
from coding_framework.cuda.expected.reference import ReferenceCache
from coding_framework.cuda.expected.tolerance import Spread
from support.judge_tasks import make_task

pytestmark = pytest.mark.unit


class Place:
    """A GPU's place on the CPU, which counts how often it is emptied."""

    device = torch.device("cpu")
    working = staticmethod(nullcontext)
    new_spread = Spread

    def __init__(self) -> None:
        self.is_crowded, self.emptied = False, 0

    def empty(self) -> None:
        self.emptied += 1


RELU = make_task("relu", "torch.relu(x)")
TASK = RELU.model_copy(
    update={"gpu_cases": (RELU.cases[0].model_copy(update={"name": "gpu main"}),)}
)


def cache_of(place: Place, max_bytes: int) -> ReferenceCache:
    return ReferenceCache(b"s", max_bytes, place)  # type: ignore[arg-type]


def test_a_draw_that_is_larger_than_what_may_be_kept_goes_when_its_work_is_done() -> None:
    place = Place()
    cache = cache_of(place, 1)
    first = cache.get(TASK, TASK.gpu_cases[0], 0)
    assert cache.get(TASK, TASK.gpu_cases[0], 0) is first  # as long as the work goes on
    cache.leave()
    assert place.emptied == 1
    assert cache.get(TASK, TASK.gpu_cases[0], 0) is not first


def test_what_may_be_kept_stays_unless_others_wait_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place()
    cache = cache_of(place, 1 << 30)
    first = cache.get(TASK, TASK.gpu_cases[0], 0)
    cache.leave()
    assert cache.get(TASK, TASK.gpu_cases[0], 0) is first
    assert place.emptied == 0
    place.is_crowded = True
    cache.leave()
    assert cache.get(TASK, TASK.gpu_cases[0], 0) is first  # it is small
    monkeypatch.setattr(reference, "_CROWDED_BYTES", 1)
    cache.leave()
    cache.leave()
    assert place.emptied == 1  # the second time there was nothing to give
    assert cache.get(TASK, TASK.gpu_cases[0], 0) is not first

"""A task for shapes that somebody wanted: extents, sums and arguments go along, or it says why."""

from __future__ import annotations

import pytest

from coding_framework.registry.wanted import MOST_ELEMENTS, widened
from coding_framework.types import Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

CASE = TestCase(
    name="main",
    inputs=(TensorSpec(name="x", shape=(4, 32), low=0.0), TensorSpec(name="r", shape=(4, 32))),
    init_args=(32, 1.5),
    reduction_length=32,
    shown=True,
)
TASK = Task(
    name="add_norm", tier=1, family="test", ops=("add_norm",), description="", reference="",
    cases=(CASE,),
)  # fmt: skip
KEY = "float32[9,64];float32[9,64];float32[64];float32[64]"


def test_a_call_with_parameters_becomes_a_shape_set_of_its_inputs() -> None:
    made = widened(TASK, [KEY, KEY], on_gpu=False)
    assert made.task is not None
    first, wanted = made.task.cases
    assert first == CASE
    assert [spec.shape for spec in wanted.inputs] == [(9, 64), (9, 64)]
    assert (wanted.init_args, wanted.reduction_length, wanted.shown) == ((64, 1.5), 64, False)
    assert wanted.inputs[0].low == 0.0
    assert made.keys == {KEY: "float32[9,64];float32[9,64]"}
    assert not made.refused


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("relu", "no shape key"),
        ("float32[4,32]", "no shape key"),
        ("float16[4,32];float16[4,32]", "float32 of rank 2"),
        ("float32[4,4,32];float32[4,4,32]", "float32 of rank 2"),
        ("float32[0,32];float32[0,32]", "without elements"),
        ("float32[4,64];float32[4,48]", "longest sum has 32 terms"),
        ("float32[65536,64];float32[65536,64]", "no GPU judges here"),
    ],
)
def test_what_cannot_be_a_shape_set_says_why(key: str, words: str) -> None:
    made = widened(TASK, [key], on_gpu=False)
    assert made.task is None
    assert words in made.refused[key]


def test_a_gpu_judges_one_shape_of_real_size_at_a_time() -> None:
    rows = MOST_ELEMENTS // 64 + 1
    keys = [f"float32[{n},64];float32[{n},64]" for n in (rows, rows + 1, 5)]
    made = widened(TASK, keys, on_gpu=True)
    assert made.task is not None
    assert [len(made.task.cases), len(made.task.gpu_cases)] == [2, 1]
    assert made.task.gpu_cases[0].inputs[0].shape == (rows, 64)
    assert "one shape of real size" in made.refused[keys[1]]


def test_a_known_shape_set_is_there_once() -> None:
    made = widened(TASK, ["float32[4,32];float32[4,32]"], on_gpu=False)
    assert made.task == TASK

"""The drawn shape set: sizes that no kernel knows, and that leave no room between known ones."""

from __future__ import annotations

import math

import pytest

from coding_framework.cuda.expected.reference import ReferenceCache
from coding_framework.types import Task, TensorSpec, TestCase

pytestmark = pytest.mark.unit

MATRICES = ((64, 96),), ((37, 53),), ((3, 5),)
Shapes = tuple[tuple[int, ...], ...]


def _task(shapes: tuple[Shapes, ...], expression: str = "x * 2", terms: int = 1) -> Task:
    names = "xyz"[: len(shapes[0])]
    return Task(
        name="t", tier=0, family="f", ops=("o",), description="",
        reference=(
            "import torch\nimport torch.nn as nn\n"
            f"class Model(nn.Module):\n    def forward(self, {', '.join(names)}):\n"
            f"        return {expression}\n"
        ),
        cases=tuple(
            TestCase(
                name=str(i),
                inputs=tuple(TensorSpec(name=n, shape=s) for n, s in zip(names, case, strict=True)),
                reduction_length=terms,
            )
            for i, case in enumerate(shapes)
        ),
    )  # fmt: skip


def _drawn(task: Task, secret: bytes = b"s") -> Shapes | None:
    case = ReferenceCache(secret).drawn_case(task)
    return None if case is None else tuple(spec.shape for spec in case.inputs)


def test_a_matrix_gets_an_odd_number_of_rows_and_more_than_256_columns() -> None:
    for secret in (b"a", b"b", b"c", b"d"):
        drawn = _drawn(_task(MATRICES), secret)
        assert drawn is not None
        ((rows, columns),) = drawn
        assert rows % 2 == 1
        assert columns > 256
        assert math.prod((rows, columns)) % 4 == columns % 4 == 2
        assert rows * columns <= 2 * 64 * 96


def test_another_secret_draws_other_sizes_and_the_same_one_the_same() -> None:
    drawn = {_drawn(_task(MATRICES), secret) for secret in (b"a", b"b", b"c", b"d")}
    assert len(drawn) > 1
    assert _drawn(_task(MATRICES), b"a") == _drawn(_task(MATRICES), b"a")


def test_sizes_that_belong_together_stay_together() -> None:
    drawn = _drawn(_task((((8, 16), (16, 4)), ((7, 9), (9, 3)), ((2, 3), (3, 5))), "x @ y", 16))
    assert drawn is not None
    (_, inner), (same, columns) = drawn
    assert inner == same > 256
    assert 3 <= columns <= 5


def test_a_vector_is_two_longer_than_a_multiple_of_four() -> None:
    drawn = _drawn(_task((((8192,),), ((5003,),), ((64,),))))
    assert drawn is not None
    assert drawn[0][0] % 4 == 2


def test_a_longer_sum_has_a_wider_bound() -> None:
    case = ReferenceCache(b"s").drawn_case(_task(MATRICES, "x.sum(1)", 96))
    assert case is not None
    assert case.reduction_length >= case.inputs[0].shape[1]


def test_what_takes_no_other_sizes_has_no_drawn_shape_set() -> None:
    assert _drawn(_task((((4, 4),), ((4, 4),), ((4, 4),)))) is None
    picky = "x * 2 if x.shape[1] < 100 else [][0]"
    assert _drawn(_task(MATRICES, picky)) is None

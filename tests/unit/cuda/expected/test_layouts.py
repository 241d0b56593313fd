"""Inputs lie in memory as the user's program hands them over."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from coding_framework.cuda.expected.inputs import (
    distinct_bytes,
    draw_inputs,
    memory_of,
    picked_inputs,
    seen_as,
    tensor_bytes,
)
from coding_framework.types import TensorSpec, TestCase

pytestmark = pytest.mark.unit

LAYOUTS = {
    "transposed": ((6, 4), (1, 6), 0),
    "a slice of columns": ((6, 4), (12, 1), 1),
    "every second": ((5,), (2,), 0),
    "expanded": ((6, 4), (0, 1), 0),
    "all of one value": ((6, 4), (0, 0), 3),
    "unaligned": ((7,), (), 5),
    "channels last": ((2, 3, 4, 5), (60, 1, 15, 3), 0),
}


def _spec(name: str) -> TensorSpec:
    shape, strides, start = LAYOUTS[name]
    return TensorSpec(name="x", shape=shape, strides=strides, start=start)


def _drawn(spec: TensorSpec) -> torch.Tensor:
    return draw_inputs(TestCase(name="main", inputs=(spec,)), b"secret", "task", 0)[0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_draw_has_the_strides_and_the_start_of_its_input(name: str) -> None:
    spec = _spec(name)
    drawn = _drawn(spec)
    assert drawn.shape == spec.shape
    assert drawn.stride() == (spec.strides or (1,))
    assert drawn.storage_offset() == spec.start


@pytest.mark.parametrize("name", LAYOUTS)
def test_its_memory_is_enough_to_see_it_again(name: str) -> None:
    drawn = _drawn(_spec(name))
    memory = memory_of(drawn).clone()
    assert memory.is_contiguous()
    assert torch.equal(seen_as(memory, drawn), drawn)


def test_only_a_repeated_axis_changes_the_values() -> None:
    plain = _drawn(TensorSpec(name="x", shape=(6, 4)))
    assert torch.equal(_drawn(_spec("transposed")), plain)
    assert torch.equal(_drawn(_spec("a slice of columns")), plain)
    assert torch.equal(_drawn(_spec("expanded")), plain[:1].expand(6, 4))


def test_a_contiguous_tensor_is_its_own_memory() -> None:
    tensor = torch.randn(6, 4)
    assert memory_of(tensor).data_ptr() == tensor.data_ptr()
    assert tensor_bytes(memory_of(tensor)) == tensor_bytes(tensor)
    assert memory_of(torch.empty(0, 4).t()).numel() == 0


def test_an_expanded_axis_has_its_bytes_once() -> None:
    assert distinct_bytes(_drawn(_spec("expanded"))) == 4 * 4
    assert distinct_bytes(_drawn(_spec("a slice of columns"))) == 6 * 4 * 4


def test_values_that_are_picked_where_they_lie_have_the_layout_too() -> None:
    spec = TensorSpec(name="x", shape=(600, 700), strides=(1, 600), start=3)
    case = TestCase(name="main", inputs=(spec,))
    pool = torch.randn(1 << 18)
    (made,) = picked_inputs([pool], case, b"secret", "task", 0, torch.device("cpu"))
    assert made.stride() == (1, 600)
    assert made.storage_offset() == 3


@pytest.mark.parametrize(
    ("name", "shape", "strides"),
    [
        ("transposed", (10, 3), (1, 10)),
        ("a slice of columns", (10, 8), (24, 1)),
        ("a slice of columns", (10, 3), (9, 1)),
        ("expanded", (10, 3), (0, 1)),
        ("channels last", (1, 8, 6, 7), (336, 1, 56, 8)),
    ],
)
def test_gaps_grow_with_what_they_lie_between(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert _spec(name).with_shape(shape).strides == strides


def test_the_record_of_a_contiguous_input_does_not_name_a_layout() -> None:
    assert "strides" not in TensorSpec(name="x", shape=(2,)).model_dump_json()
    with pytest.raises(ValidationError, match="2 axes, 1 strides"):
        TensorSpec(name="x", shape=(2, 3), strides=(1,))

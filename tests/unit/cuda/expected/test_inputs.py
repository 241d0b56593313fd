"""Draws: repeatable, in the declared domain, and different enough that no shortcut passes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_framework.cuda.expected.inputs import (
    TORCH_DTYPES,
    bits_of,
    derive_seed,
    draw_inputs,
    tensor_bytes,
    tensor_from_bits,
)
from coding_framework.types import TensorSpec, TestCase

pytestmark = pytest.mark.unit


def _case(**spec: object) -> TestCase:
    fields = {"name": "x", "shape": (32, 33), **spec}
    return TestCase(name="main", inputs=(TensorSpec.model_validate(fields),))


def _draw(case: TestCase, seed: int, secret: bytes = b"s") -> torch.Tensor:
    return draw_inputs(case, secret, "task", seed)[0]


def test_the_same_secret_and_seed_give_the_same_bytes() -> None:
    case = _case()
    assert tensor_bytes(_draw(case, 3)) == tensor_bytes(_draw(case, 3))


def test_another_secret_or_seed_gives_other_inputs() -> None:
    case = _case()
    assert not torch.equal(_draw(case, 3), _draw(case, 3, b"other"))
    assert not torch.equal(_draw(case, 3), _draw(case, 8))


def test_a_derived_seed_does_not_collide_when_parts_are_joined_otherwise() -> None:
    assert derive_seed(b"s", "ab", "c") != derive_seed(b"s", "a", "bc")


@pytest.mark.parametrize("dtype", sorted(TORCH_DTYPES))
@pytest.mark.parametrize("seed", range(5))
def test_every_dtype_is_drawn_in_every_family(dtype: str, seed: int) -> None:
    drawn = _draw(_case(dtype=dtype), seed)
    assert drawn.dtype is TORCH_DTYPES[dtype]
    assert drawn.shape == (32, 33)
    assert drawn.is_contiguous()
    assert len(torch.unique(drawn.to(torch.float64))) > 1


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float32", "float16", "int32", "uint8"]),
    st.floats(0, 50),
    st.floats(0.5, 50),
    st.integers(0, 9),
)
def test_values_stay_in_the_declared_domain(
    dtype: str, low: float, width: float, seed: int
) -> None:
    bounds = (low, low + width) if "float" in dtype else (float(int(low)), float(int(low) + 9))
    drawn = _draw(_case(dtype=dtype, low=bounds[0], high=bounds[1]), seed).to(torch.float64)
    slack = 1e-3 * (1 + bounds[1]) if dtype == "float16" else 1e-5 * (1 + bounds[1])
    assert float(drawn.min()) >= bounds[0] - slack
    assert float(drawn.max()) <= bounds[1] + slack


def test_a_one_sided_domain_holds() -> None:
    for seed in range(5):
        assert float(_draw(_case(low=0.5), seed).min()) >= 0.5
        assert float(_draw(_case(high=-0.5), seed).max()) <= -0.5


def test_five_seeds_differ_in_scale_sign_and_mean() -> None:
    draws = [_draw(_case(shape=(64, 64)), seed) for seed in range(5)]
    means = [float(d.mean()) for d in draws]
    assert max(means) > 1.0
    assert min(means) < -0.5
    spreads = [float(d.std()) for d in draws]
    assert max(spreads) > 3 * min(spreads)


def test_some_slices_of_one_draw_have_so_little_variance_that_an_epsilon_shows() -> None:
    for bounds in ({}, {"low": -2.0, "high": 1.0}):
        drawn = _draw(_case(shape=(64, 64), **bounds), 0)
        quiet = drawn.var(1) < 1e-5
        assert int(quiet.sum()) == 8
        assert float(drawn[~quiet].var(1).min()) > 1e-2
    assert float(_draw(_case(shape=(64, 64), low=0.5), 0).min()) >= 0.5


def test_a_prefix_does_not_tell_the_rest() -> None:
    """In at least one draw the mean and the largest element of the first half are far off."""
    off_mean, off_max = [], []
    for seed in range(5):
        drawn = _draw(_case(shape=(8, 512)), seed)
        half = drawn[:, :256]
        off_mean.append(float((half.mean(1) - drawn.mean(1)).abs().max()))
        off_max.append(float((half.amax(1) - drawn.amax(1)).abs().max()))
    assert max(off_mean) > 0.5
    assert max(off_max) > 0.5


def test_inputs_of_one_draw_differ_in_family() -> None:
    specs = tuple(TensorSpec(name=n, shape=(64, 64)) for n in "ab")
    a, b = draw_inputs(TestCase(name="main", inputs=specs), b"s", "task", 0)
    assert abs(float(a.mean()) - float(b.mean())) > 1.0


def test_scalar_and_empty_tensors_are_drawn() -> None:
    assert _draw(_case(shape=()), 3).shape == ()
    assert _draw(_case(shape=(0, 4)), 3).shape == (0, 4)


@pytest.mark.parametrize("dtype", sorted(TORCH_DTYPES))
def test_bytes_and_tensor_are_inverse(dtype: str) -> None:
    drawn = _draw(_case(dtype=dtype, shape=(3, 5)), 1)
    back = tensor_from_bits(bits_of(tensor_bytes(drawn)), drawn.dtype)
    assert torch.equal(back.reshape(3, 5), drawn)

"""What rounding can lose: the scale of an element's own computation, and of no other's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from coding_framework.cuda.expected.rounding import Inexact

pytestmark = pytest.mark.unit

EPS = 2.0**-22
Function = Callable[[torch.Tensor], torch.Tensor]


def _scale(function: Function, x: torch.Tensor, *, beyond: bool = True) -> torch.Tensor:
    exact, most = function(x.clone()), None
    for seed in range(8):
        with Inexact(EPS, seed, decides_beyond=beyond):
            moved = function(x.clone())
        change = (moved - exact).abs() / EPS
        most = change if most is None else torch.maximum(most, change)
    assert most is not None
    return most


def _values(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _logit_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    target = torch.zeros_like(x)
    return functional.binary_cross_entropy_with_logits(x, target, reduction=reduction)


@pytest.mark.parametrize(
    ("function", "x", "scale"),
    [
        (lambda x: x * 3.0 - 3.0, 1.0, 3.0),  # the product that cancels
        (lambda x: x - 3.0, 3.0, 3.0),
        (lambda x: torch.exp(5 * x), -4.0, 43e-9),  # every digit, but those of the exponent
        (lambda x: torch.exp(x * x), 0.001, 1.0),
        (torch.tanh, 1e-3, 1.0),  # by exponentials it goes through 1
        (functional.gelu, -6.0, 6.0),
        (torch.sin, 1e4, 17.0),  # not ten thousand
        (torch.relu, -1.0, 0.0),
        (torch.abs, 2.0, 0.0),
        (lambda x: _logit_loss(x, "none"), -67.0, 67.0),  # of which PyTorch keeps nothing
        (lambda x: _logit_loss(x, "mean"), -67.0, 67.0),
    ],
    ids=[
        "product",
        "difference",
        "exp",
        "exp of square",
        "tanh",
        "gelu",
        "sine",
        "relu",
        "abs",
        "loss of a logit",
        "mean loss of logits",
    ],
)
def test_an_element_has_the_scale_of_its_own_computation(
    function: Function, x: float, scale: float
) -> None:
    found = float(_scale(function, _values(x)))
    assert 0.4 * scale <= found <= 4 * scale


def test_a_large_element_lends_nothing_to_a_small_one() -> None:
    found = _scale(lambda x: x * 2.0, _values(1e-6, 1e6))
    assert float(found[0]) < 1e-5


def test_a_sum_has_the_scale_of_its_terms() -> None:
    x = torch.cat([torch.ones(500), -torch.ones(500)]).double()
    assert 10 < float(_scale(lambda x: x.sum(), x)) < 200


def test_a_variance_loses_the_square_of_mean_over_deviation_up_to_a_hundred() -> None:
    noise = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near, far = ((noise + mean)[None] for mean in (10.0, 1000.0))

    def norm(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (64,))

    assert 5 < float(_scale(norm, near).max()) < 200
    assert float(_scale(norm, far).max()) < 1e5
    assert float(_scale(norm, near, beyond=False).max()) < 200
    assert float(_scale(norm, far, beyond=False).min()) > 1e20  # it decides nothing


def test_what_is_written_in_place_is_off_as_well() -> None:
    found = _scale(lambda x: x.mul_(3.0).sub_(3.0), _values(1.0))
    assert 1.5 < float(found) < 15.0


def test_a_norm_that_keeps_statistics_has_the_scale_of_its_terms_too() -> None:
    x = torch.linspace(-1, 1, 64, dtype=torch.float64)[:, None] + 1e-6  # its mean is next to 0

    def norm(x: torch.Tensor) -> torch.Tensor:
        kept = torch.zeros(1, dtype=x.dtype), torch.ones(1, dtype=x.dtype)
        return functional.batch_norm(x, *kept, training=True)

    assert float(_scale(norm, x).min()) > 0.03  # what the mean loses, whatever is left of x


def test_the_operations_are_counted() -> None:
    with Inexact(EPS, 0) as inexact:
        torch.topk(_values(1.0, 2.0), 1)
    assert inexact.seen["topk"] == 1


def test_large_tensors_are_moved_alike_each_time() -> None:
    x = torch.ones(70_000, dtype=torch.float64)

    def moved() -> torch.Tensor:
        with Inexact(EPS, 1):
            return x * 3.0

    assert torch.equal(moved(), moved())
    assert not torch.equal(moved(), x * 3.0)

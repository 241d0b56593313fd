"""What a wrong output shows of its cause never fails, whatever the output is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from coding_framework.cuda.advice.mismatch import WrongOutput, mismatch


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Of its rows."""
    return torch.arange(len(tensor)).reshape(-1, *[1] * (tensor.dim() - 1))


_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one more": lambda t: t + 1,
    "zeros": lambda t: t * 0,
    "other sign": lambda t: -t,
    "each row by its own": lambda t: t * (1 + _numbers(t)),
    "each row its own more": lambda t: t + _numbers(t),
    "infinite": lambda t: t * float("inf"),
    "nan": lambda t: t * float("nan"),
    "largest": lambda t: t + 3e38,
    "turned": lambda t: t.flip(-1),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (1, 1), (5, 1), (1, 5), (6, 4), (2, 3, 4)])
@pytest.mark.parametrize("change", _CHANGES)
def test_never_fails(shape: tuple[int, ...], change: str) -> None:
    torch.manual_seed(1)
    for want in (torch.randn(shape).double(), torch.ones(shape).double()):
        got = _CHANGES[change](want).float()
        for inputs in ((want.float(),), ()):
            wrong = ~torch.isclose(got.double(), want)
            out = WrongOutput(got, want, wrong, inputs, ("x",)[: len(inputs)])
            for recompute in (lambda _: None, lambda given: given[0].double() if given else None):
                assert isinstance(mismatch(out, recompute), list)


@pytest.mark.parametrize(
    "given", [torch.zeros(3, 0), torch.tensor(3), torch.zeros(0, 4, dtype=torch.int64)]
)
def test_inputs_without_an_axis_or_an_element_are_looked_at_too(given: torch.Tensor) -> None:
    got, want = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([2.0, 1.0, 9.0], dtype=torch.float64)
    out = WrongOutput(got, want, got != want, (given,), ("x",))
    assert mismatch(out, lambda _: None) == []


def _norm_of(given: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """RMS norm of the first, gated by the second."""
    x, gate = (t.double() for t in given)
    if x.shape != gate.shape:
        return None
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * torch.sigmoid(gate)


@pytest.mark.parametrize("mistake", ["gate left out", "sum for mean"])
def test_an_input_that_is_left_out_and_a_sum_for_a_mean_are_no_missing_epsilon(
    mistake: str,
) -> None:
    """A row of eight is so small that the epsilon shows there, and all gates are positive."""
    torch.manual_seed(1)
    x, gate = torch.randn(8, 256), torch.rand(8, 256) + 0.1
    x[4] *= 1e-3
    want = _norm_of([x, gate])
    assert want is not None
    if mistake == "gate left out":
        rule, got = "unread_input", want / torch.sigmoid(gate.double())
    else:
        summed = torch.rsqrt(x.double().square().sum(-1, keepdim=True) + 1e-6)
        rule, got = "factor", x * summed * torch.sigmoid(gate.double())
    out = WrongOutput(got.float(), want, ~torch.isclose(got, want), (x, gate), ("x", "gate"))
    assert [found.rule for found in mismatch(out, _norm_of)] == [rule]

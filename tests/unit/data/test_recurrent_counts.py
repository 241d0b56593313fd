"""What recurrent layers come to, counted over a few steps of their sequence."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from coding_framework.reference_model.operations import FewSteps, OperationCounter

pytestmark = pytest.mark.unit


def counted(layer: Any, x: torch.Tensor, few: bool) -> list[Any]:
    with OperationCounter() as counter, FewSteps(counter) if few else nullcontext():
        output, state = layer(x)
        after = output[..., -1:].sum()
    states = state if isinstance(state, tuple) else (state,)
    tensors = (output, *states, after)
    found = [(t.shape, counter.terms(t)) for t in tensors]
    return [counter.flops, counter.elements, *found]


@pytest.mark.parametrize("shape", [(7, 9, 16), (9, 16)], ids=["batched", "of one"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.nn.GRU, {}),
        (torch.nn.LSTM, {"batch_first": True, "bidirectional": True}),
        (torch.nn.RNN, {"nonlinearity": "relu", "batch_first": True}),
        (torch.nn.LSTM, {"proj_size": 5}),
    ],
    ids=["gru", "lstm both ways", "rnn", "lstm projected"],
)
def test_a_few_steps_come_to_what_all_do(
    kind: Any, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    with torch.device("meta"), torch.no_grad():
        layer, x = kind(16, 20, num_layers=2, **options), torch.empty(shape)
        assert counted(layer, x, few=True) == counted(layer, x, few=False)

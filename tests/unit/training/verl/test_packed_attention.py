"""Packed rows: the same logits and gradients as under a mask, and nothing that is not packed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from coding_framework.errors import TrainingError
from coding_framework.training.verl import worker
from coding_framework.training.verl.overrides import PACKED_ATTENTION

pytestmark = pytest.mark.unit

worker.register_attention()

ROWS = (7, 1, 12, 5)


def made(attention: str, device: str = "cpu", **changes: int) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2} | changes
    config = Qwen2Config(
        vocab_size=50, intermediate_size=96, num_hidden_layers=3, attn_implementation=attention,
        **sizes,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).to(device)


def packed(rows: Sequence[int], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens, positions), both (1, sum of the rows)."""
    torch.manual_seed(1)
    tokens = torch.randint(50, (1, sum(rows)), device=device)
    positions = torch.cat([torch.arange(n, device=device) for n in rows]).unsqueeze(0)
    return tokens, positions


def logits_and_gradient(
    model: Qwen2ForCausalLM, rows: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, positions = packed(rows, str(model.device))
    logits = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
    model.zero_grad()
    logits.float().log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).sum().backward()
    gradient = model.model.layers[0].self_attn.q_proj.weight.grad
    assert gradient is not None
    return logits.detach(), gradient


@pytest.mark.parametrize("rows", [ROWS, (9,), (1, 1, 1)])
def test_a_row_sees_itself_alone(rows: Sequence[int]) -> None:
    masked = logits_and_gradient(made("sdpa"), rows)
    found = logits_and_gradient(made(PACKED_ATTENTION), rows)
    for one, other in zip(masked, found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_other_rows_change_nothing() -> None:
    model = made(PACKED_ATTENTION)
    tokens, positions = packed(ROWS)
    whole = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
    start = ROWS[0] + ROWS[1]
    row = slice(start, start + ROWS[2])
    alone = model(input_ids=tokens[:, row], position_ids=positions[:, row], use_cache=False).logits
    torch.testing.assert_close(whole[:, row], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("inference", [False, True])
def test_positions_that_are_filled_anew_are_read_anew(inference: bool) -> None:
    model = made(PACKED_ATTENTION)
    with torch.inference_mode(inference):
        tokens, positions = packed(ROWS)
        model(input_ids=tokens, position_ids=positions, use_cache=False)
        positions.copy_(torch.arange(sum(ROWS)))
        found = model(input_ids=tokens, position_ids=positions, use_cache=False).logits
        one_row = model(input_ids=tokens, position_ids=positions.clone(), use_cache=False).logits
    torch.testing.assert_close(found, one_row, atol=1e-6, rtol=1e-6)


def test_what_is_not_packed_is_refused() -> None:
    model = made(PACKED_ATTENTION)
    tokens, positions = packed(ROWS)
    with pytest.raises(TrainingError, match="packed into one"):
        model(input_ids=tokens.repeat(2, 1), use_cache=False)
    with pytest.raises(TrainingError, match="begin at position 0"):
        model(input_ids=tokens, position_ids=positions + 1, use_cache=False)
    x = torch.zeros(1, 4, 3, 8)
    with pytest.raises(TrainingError, match="sliding window"):
        worker.attend(
            None, x, x, x, None, position_ids=torch.arange(3).unsqueeze(0), sliding_window=2
        )


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and its driver")
def test_a_gpu_computes_the_same() -> None:
    rows = (700, 1, 333, 1200)
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    masked = logits_and_gradient(made("sdpa", "cuda", **sizes).bfloat16(), rows)
    found = logits_and_gradient(made(PACKED_ATTENTION, "cuda", **sizes).bfloat16(), rows)
    for one, other in zip(masked, found, strict=True):
        difference = (one.float() - other.float()).norm() / one.float().norm()
        assert difference < 0.02, difference

"""Log-probs of packed tokens by chunks are those of log_softmax, and so are their gradients."""

from __future__ import annotations

import pytest
import torch

from coding_framework.training.verl import patches
from coding_framework.training.verl import worker as module

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_chunks_give_what_log_softmax_gives(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)
    torch.manual_seed(0)
    raw = (5 * torch.randn(11, 37)).to(dtype)
    labels = torch.randint(0, 37, (11,))
    weights = torch.randn(11)
    ours, theirs = (raw.clone().requires_grad_() for _ in range(2))
    found = module.token_logprobs(ours, labels)
    expected = theirs.float().log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_verls_own_function_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import verl.utils.torch_functional as verl_functional

    patches.use_token_logprobs()
    monkeypatch.setattr(verl_functional, "FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE", False)
    logits, labels = torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)
    found = verl_functional.logprobs_from_logits(logits, labels)
    torch.testing.assert_close(found, logits.log_softmax(-1)[..., 0])

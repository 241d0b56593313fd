"""The loss of answers: summed over a batch, and its mean over held-out examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from coding_framework.training.sft_examples import TokenizedExample


class HeldOutLoss(NamedTuple):
    """Mean over `tokens` answer tokens, in nats."""

    mean: float
    tokens: int


def answer_loss(model: Any, batch: Mapping[str, Any]) -> Any:
    """Sum over the answer tokens of a batch, in nats; a scalar tensor with its gradient. Of a
    causal language model with an adapter; rows are told apart by `attention_mask` or, where a row
    holds several examples, by `position_ids` that start again.

    It projects onto the vocabulary only where a label is.
    """
    from torch.nn import functional

    inner = model.get_base_model()
    told = {name: batch[name] for name in ("attention_mask", "position_ids") if name in batch}
    labels = batch["labels"][:, 1:]
    hidden = inner.base_model(
        input_ids=batch["input_ids"], use_cache=False, **told
    ).last_hidden_state
    logits = inner.get_output_embeddings()(hidden[:, :-1][labels != -100])
    return functional.cross_entropy(logits.float(), labels[labels != -100], reduction="sum")


def held_out_loss(
    model: Any,
    examples: Sequence[TokenizedExample],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> HeldOutLoss:
    """Each example alone, so that none depends on a batch; without dropout and gradients."""
    import torch

    device = next(model.parameters()).device
    training, total, tokens = model.training, 0.0, 0
    model.eval()
    try:
        with torch.no_grad(), autocast():
            for example in examples:
                row = {"input_ids": [example.input_ids], "labels": [example.labels]}
                batch = {name: torch.tensor(ids, device=device) for name, ids in row.items()}
                total += float(answer_loss(model, batch))
                tokens += len(example.input_ids) - example.prompt_length
    finally:
        model.train(training)
    return HeldOutLoss(total / tokens, tokens)

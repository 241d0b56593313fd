"""The loss of answers: summed over a batch, and its mean over held-out examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from coding_framework.training.sft_examples import TokenizedExample

AT_ONCE = 4096
"""Answer tokens whose logits are held at a time: 2.5 GB of float32 for 150,000 words. More are
projected twice, as the backward pass needs them again."""


class HeldOutLoss(NamedTuple):
    """Mean over `tokens` answer tokens, in nats."""

    mean: float
    tokens: int


def answer_loss(model: Any, batch: Mapping[str, Any]) -> Any:
    """Sum over the answer tokens of a batch, in nats; a scalar tensor with its gradient. Of a
    causal language model with an adapter. Rows are padded at the right, if at all, where nothing
    that is learnt can attend to it; where a row holds several examples, `position_ids` that start
    again tell them apart.

    It projects onto the vocabulary only where a label is, so many tokens at a time that the logits
    take a few GB at most.
    """
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    inner = model.get_base_model()
    told = {name: batch[name] for name in ("position_ids",) if name in batch}
    labels = batch["labels"][:, 1:]
    hidden = inner.base_model(
        input_ids=batch["input_ids"], use_cache=False, **told
    ).last_hidden_state
    project = inner.get_output_embeddings()

    def summed(states: Any, wanted: Any) -> Any:
        return functional.cross_entropy(project(states).float(), wanted, reduction="sum")

    states, wanted = hidden[:, :-1][labels != -100], labels[labels != -100]
    if len(wanted) <= AT_ONCE:
        return summed(states, wanted)
    parts = zip(states.split(AT_ONCE), wanted.split(AT_ONCE), strict=True)
    return sum(checkpoint(summed, *part, use_reentrant=False) for part in parts)


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

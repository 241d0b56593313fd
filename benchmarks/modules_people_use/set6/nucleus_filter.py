import torch
import torch.nn as nn

BATCH = 32
VOCAB = 128_256
HISTORY = 512


class Model(nn.Module):
    """Repetition penalty, temperature and top-p filtering of next-token logits, as probabilities."""

    def __init__(self, temperature: float, top_p: float, repetition_penalty: float):
        super().__init__()
        self.temperature = temperature
        self.top_p = top_p
        self.repetition_penalty = repetition_penalty

    def forward(self, logits: torch.Tensor, previous_tokens: torch.Tensor) -> torch.Tensor:
        seen = logits.gather(1, previous_tokens)
        seen = torch.where(seen > 0, seen / self.repetition_penalty, seen * self.repetition_penalty)
        logits = logits.scatter(1, previous_tokens, seen) / self.temperature

        sorted_logits, order = logits.sort(dim=-1, descending=True)
        probs = sorted_logits.softmax(dim=-1)
        # mass strictly before each token, so the best token always survives
        mass_before = probs.cumsum(dim=-1) - probs
        sorted_logits = sorted_logits.masked_fill(mass_before > self.top_p, float("-inf"))
        filtered = sorted_logits.scatter(1, order, sorted_logits)
        return filtered.softmax(dim=-1)


def get_inputs():
    return [torch.randn(BATCH, VOCAB) * 3.0, torch.randint(0, VOCAB, (BATCH, HISTORY))]


def get_init_inputs():
    return [0.7, 0.9, 1.2]

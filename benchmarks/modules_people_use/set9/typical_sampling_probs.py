import torch
import torch.nn as nn


BATCH = 128
VOCABULARY = 50257
MASS = 0.9
TEMPERATURE = 0.8


class Model(nn.Module):
    """Locally typical sampling: keeps tokens with a surprise nearest the entropy, up to a given mass."""

    def __init__(self, mass, temperature):
        super().__init__()
        self.mass = mass
        self.temperature = temperature

    def forward(self, logits):
        log_probs = torch.log_softmax(logits / self.temperature, dim=-1)
        probs = log_probs.exp()
        entropy = -(log_probs * probs).sum(dim=-1, keepdim=True)
        deviation = (-log_probs - entropy).abs()
        deviation, order = deviation.sort(dim=-1)
        cumulative = probs.gather(-1, order).cumsum(dim=-1)
        last = (cumulative < self.mass).sum(dim=-1, keepdim=True).clamp(max=logits.size(-1) - 1)
        drop = deviation > deviation.gather(-1, last)
        drop = torch.zeros_like(drop).scatter(-1, order, drop)
        kept = probs.masked_fill(drop, 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(BATCH, VOCABULARY) * 4.0]


def get_init_inputs():
    return [MASS, TEMPERATURE]

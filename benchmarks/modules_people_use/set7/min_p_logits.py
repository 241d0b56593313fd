import torch
import torch.nn as nn


BATCH = 64
VOCAB = 128256
CONTEXT = 1024
TEMPERATURE = 0.8
PENALTY = 1.1
MIN_P = 0.05


class Model(nn.Module):
    """Sampling probabilities after repetition penalty, temperature and min-p truncation."""

    def __init__(self, temperature, penalty, min_p):
        super().__init__()
        self.temperature = temperature
        self.penalty = penalty
        self.min_p = min_p

    def forward(self, logits, prev_tokens):
        seen = logits.gather(1, prev_tokens)
        seen = torch.where(seen < 0, seen * self.penalty, seen / self.penalty)
        logits = logits.scatter(1, prev_tokens, seen)

        logits = logits / self.temperature
        probs = torch.softmax(logits, dim=-1)
        floor = self.min_p * probs.amax(dim=-1, keepdim=True)
        logits = logits.masked_fill(probs < floor, float("-inf"))
        return torch.softmax(logits, dim=-1)


def get_inputs():
    logits = 3.0 * torch.randn(BATCH, VOCAB)
    prev_tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT))
    return [logits, prev_tokens]


def get_init_inputs():
    return [TEMPERATURE, PENALTY, MIN_P]

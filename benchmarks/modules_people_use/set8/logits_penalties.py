import torch
import torch.nn as nn

BATCH = 64
VOCAB = 151936
PROMPT_LEN = 1024
OUTPUT_LEN = 512


class Model(nn.Module):
    """Repetition, frequency and presence penalties on next-token logits, as LLM servers apply them."""

    def __init__(self, repetition_penalty=1.1, frequency_penalty=0.2, presence_penalty=0.4):
        super().__init__()
        self.repetition_penalty = repetition_penalty
        self.frequency_penalty = frequency_penalty
        self.presence_penalty = presence_penalty

    def _bincount(self, tokens, valid, logits):
        counts = torch.zeros_like(logits)
        return counts.scatter_add(1, tokens, valid.to(logits.dtype))

    def forward(self, logits, prompt_tokens, output_tokens, output_valid, temperature):
        prompt_mask = self._bincount(prompt_tokens, torch.ones_like(prompt_tokens), logits) > 0
        output_counts = self._bincount(output_tokens, output_valid, logits)
        output_mask = output_counts > 0
        penalties = torch.where(prompt_mask | output_mask, self.repetition_penalty, 1.0)
        logits = torch.where(logits > 0, logits / penalties, logits * penalties)
        logits = logits - self.frequency_penalty * output_counts
        logits = logits - self.presence_penalty * output_mask
        return (logits / temperature.unsqueeze(1)).log_softmax(dim=-1)


def get_inputs():
    lengths = torch.randint(1, OUTPUT_LEN + 1, (BATCH, 1))
    return [
        3 * torch.randn(BATCH, VOCAB),
        torch.randint(0, VOCAB, (BATCH, PROMPT_LEN)),
        torch.randint(0, VOCAB // 50, (BATCH, OUTPUT_LEN)),
        torch.arange(OUTPUT_LEN).unsqueeze(0) < lengths,
        0.5 + torch.rand(BATCH),
    ]


def get_init_inputs():
    return [1.1, 0.2, 0.4]

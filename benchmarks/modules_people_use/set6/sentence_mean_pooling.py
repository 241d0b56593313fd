import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
SEQ_LEN = 256
HIDDEN = 768


class Model(nn.Module):
    """Mask-aware mean pooling of token states into unit-length sentence embeddings."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = attention_mask.unsqueeze(-1).to(hidden_states.dtype)
        summed = (hidden_states * mask).sum(dim=1)
        counts = mask.sum(dim=1).clamp(min=1e-9)
        return F.normalize(summed / counts, p=2, dim=-1)


def get_inputs():
    lengths = torch.randint(8, SEQ_LEN + 1, (BATCH, 1))
    attention_mask = (torch.arange(SEQ_LEN)[None, :] < lengths).long()
    return [torch.randn(BATCH, SEQ_LEN, HIDDEN), attention_mask]


def get_init_inputs():
    return []

import torch
import torch.nn as nn


class Model(nn.Module):
    """Pools token states with learned attention weights, ignoring padding, and L2-normalises the result."""

    def __init__(self, hidden_size, attn_size=128):
        super().__init__()
        self.scorer = nn.Sequential(
            nn.Linear(hidden_size, attn_size),
            nn.Tanh(),
            nn.Linear(attn_size, 1, bias=False),
        )

    def forward(self, last_hidden_state, attention_mask):
        scores = self.scorer(last_hidden_state).squeeze(-1)
        scores = scores.masked_fill(attention_mask == 0, float("-inf"))
        weights = torch.softmax(scores, dim=1)
        pooled = torch.einsum("bt,bth->bh", weights, last_hidden_state)
        return nn.functional.normalize(pooled, p=2, dim=-1)


batch_size = 32
max_len = 256
hidden = 768


def get_inputs():
    states = torch.randn(batch_size, max_len, hidden)
    lengths = torch.randint(4, max_len + 1, (batch_size,))
    mask = (torch.arange(max_len)[None, :] < lengths[:, None]).long()
    return [states, mask]


def get_init_inputs():
    return [hidden]

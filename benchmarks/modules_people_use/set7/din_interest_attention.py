import torch
import torch.nn as nn


BATCH = 4096
HISTORY = 50
DIM = 64
HIDDEN = (80, 40)


class Model(nn.Module):
    """Deep Interest Network: pools a user's history with weights that depend on the item."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.scale = dim ** -0.5
        self.mlp = nn.Sequential(
            nn.Linear(4 * dim, hidden[0]),
            nn.Sigmoid(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Sigmoid(),
            nn.Linear(hidden[1], 1),
        )

    def forward(self, item, history, mask):
        query = item.unsqueeze(1).expand_as(history)
        feats = torch.cat([query, history, query - history, query * history], dim=-1)
        score = self.mlp(feats).squeeze(-1) * self.scale
        score = score.masked_fill(~mask, float("-inf"))
        weight = torch.softmax(score, dim=-1)
        return torch.bmm(weight.unsqueeze(1), history).squeeze(1)


def get_inputs():
    item = torch.randn(BATCH, DIM)
    history = torch.randn(BATCH, HISTORY, DIM)
    length = torch.randint(1, HISTORY + 1, (BATCH, 1))
    mask = torch.arange(HISTORY).unsqueeze(0) < length
    return [item, history, mask]


def get_init_inputs():
    return [DIM, HIDDEN]

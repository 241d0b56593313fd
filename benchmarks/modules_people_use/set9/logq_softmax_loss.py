import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 8192
DIM = 128
CATALOGUE = 200000
TEMPERATURE = 0.07


class Model(nn.Module):
    """In-batch softmax loss of a two-tower retriever, with logQ correction and masked accidental hits."""

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, users, items, item_ids, log_q):
        users = F.normalize(users, dim=1)
        items = F.normalize(items, dim=1)
        logits = users @ items.t() / self.temperature - log_q
        rows = torch.arange(users.size(0), device=users.device)
        same_item = item_ids.unsqueeze(1) == item_ids.unsqueeze(0)
        not_self = rows.unsqueeze(1) != rows.unsqueeze(0)
        logits = logits.masked_fill(same_item & not_self, -1e9)
        return F.cross_entropy(logits, rows)


def get_inputs():
    users = torch.randn(BATCH, DIM)
    items = torch.randn(BATCH, DIM) + 0.3 * users
    item_ids = (torch.rand(BATCH).pow(3) * CATALOGUE).long()
    log_q = -torch.rand(BATCH) * 6.0 - 6.0
    return [users, items, item_ids, log_q]


def get_init_inputs():
    return [TEMPERATURE]

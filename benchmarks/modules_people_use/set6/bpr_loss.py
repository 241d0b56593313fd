import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 65536
EMBED_DIM = 64


class Model(nn.Module):
    """Bayesian personalised ranking loss over (user, positive item, negative item) embeddings."""

    def forward(
        self, user: torch.Tensor, pos_item: torch.Tensor, neg_item: torch.Tensor
    ) -> torch.Tensor:
        margin = (user * (pos_item - neg_item)).sum(dim=-1)
        return F.softplus(-margin).mean()


def get_inputs():
    return [
        torch.randn(BATCH, EMBED_DIM) * 0.3,
        torch.randn(BATCH, EMBED_DIM) * 0.3,
        torch.randn(BATCH, EMBED_DIM) * 0.3,
    ]


def get_init_inputs():
    return []

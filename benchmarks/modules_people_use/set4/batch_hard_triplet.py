import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Batch-hard soft-margin triplet loss for person re-identification."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, embeddings: torch.Tensor, pids: torch.Tensor) -> torch.Tensor:
        dist = torch.cdist(embeddings, embeddings)
        is_pos = pids[:, None].eq(pids[None, :])
        # hardest positive and hardest negative of every anchor
        dist_ap = dist.masked_fill(~is_pos, float("-inf")).max(dim=1).values
        dist_an = dist.masked_fill(is_pos, float("inf")).min(dim=1).values
        return F.softplus(self.scale * (dist_ap - dist_an)).mean()


batch_size = 2048
feat_dim = 256
num_ids = 256


def get_inputs():
    return [torch.randn(batch_size, feat_dim), torch.randint(0, num_ids, (batch_size,))]


def get_init_inputs():
    return [1.0]

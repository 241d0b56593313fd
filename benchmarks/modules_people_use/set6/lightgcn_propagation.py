import torch
import torch.nn as nn

NUM_NODES = 100_000
NUM_EDGES = 500_000
EMBED_DIM = 64


class Model(nn.Module):
    """One LightGCN hop: degree-normalised neighbour sum, averaged with the incoming embeddings."""

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor
    ) -> torch.Tensor:
        src, dst = edge_index[0], edge_index[1]
        messages = x.index_select(0, src) * edge_weight.unsqueeze(-1)
        aggregated = torch.zeros_like(x).index_add(0, dst, messages)
        return 0.5 * (x + aggregated)


def get_inputs():
    edge_index = torch.randint(0, NUM_NODES, (2, NUM_EDGES))
    degree = torch.bincount(edge_index[1], minlength=NUM_NODES).clamp(min=1).float()
    inv_sqrt = degree.rsqrt()
    edge_weight = inv_sqrt[edge_index[0]] * inv_sqrt[edge_index[1]]
    return [torch.randn(NUM_NODES, EMBED_DIM) * 0.1, edge_index, edge_weight]


def get_init_inputs():
    return []

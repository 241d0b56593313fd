import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_NODES = 16_384
NUM_EDGES = 131_072
HIDDEN = 128


class Model(nn.Module):
    """E(n)-equivariant graph layer updating node features and coordinates, with edge gating."""

    def __init__(self, hidden: int):
        super().__init__()
        self.edge_mlp1 = nn.Linear(2 * hidden + 1, hidden)
        self.edge_mlp2 = nn.Linear(hidden, hidden)
        self.edge_gate = nn.Linear(hidden, 1)
        self.coord_mlp1 = nn.Linear(hidden, hidden)
        self.coord_mlp2 = nn.Linear(hidden, 1, bias=False)
        self.node_mlp1 = nn.Linear(2 * hidden, hidden)
        self.node_mlp2 = nn.Linear(hidden, hidden)

    def forward(self, h: torch.Tensor, coords: torch.Tensor, edge_index: torch.Tensor):
        row, col = edge_index[0], edge_index[1]

        diff = coords[row] - coords[col]
        dist_sq = diff.square().sum(dim=-1, keepdim=True)
        direction = diff / (dist_sq.sqrt() + 1.0)

        m = torch.cat([h[row], h[col], dist_sq], dim=-1)
        m = F.silu(self.edge_mlp1(m))
        m = F.silu(self.edge_mlp2(m))
        m = m * torch.sigmoid(self.edge_gate(m))

        # coordinates: mean over the neighbours
        shift = direction * torch.tanh(self.coord_mlp2(F.silu(self.coord_mlp1(m))))
        total = torch.zeros_like(coords).index_add(0, row, shift)
        degree = coords.new_zeros(coords.shape[0], 1).index_add(0, row, torch.ones_like(dist_sq))
        coords = coords + total / degree.clamp(min=1.0)

        # features: sum over the neighbours
        agg = torch.zeros_like(h).index_add(0, row, m)
        update = self.node_mlp2(F.silu(self.node_mlp1(torch.cat([h, agg], dim=-1))))
        return h + update, coords


def get_inputs():
    return [
        torch.randn(NUM_NODES, HIDDEN),
        torch.randn(NUM_NODES, 3) * 2.0,
        torch.randint(0, NUM_NODES, (2, NUM_EDGES)),
    ]


def get_init_inputs():
    return [HIDDEN]

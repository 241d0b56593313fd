import torch
import torch.nn as nn


NODES = 100000
EDGES = 600000
CHANNELS = 128
HIDDEN = 256


class Model(nn.Module):
    """Graph isomorphism layer: sum over the neighbours, learned self weight, then a two-layer perceptron."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.eps = nn.Parameter(torch.tensor(0.1))
        self.lin1 = nn.Linear(channels, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.lin2 = nn.Linear(hidden, channels)

    def forward(self, x, edge_index):
        source, target = edge_index[0], edge_index[1]
        neighbours = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
        h = (1.0 + self.eps) * x + neighbours
        h = torch.relu(self.norm(self.lin1(h)))
        return torch.relu(self.lin2(h))


def get_inputs():
    return [torch.randn(NODES, CHANNELS), torch.randint(0, NODES, (2, EDGES))]


def get_init_inputs():
    return [CHANNELS, HIDDEN]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Residual gated graph convolution with edge features, on an edge list."""

    def __init__(self, dim):
        super().__init__()
        self.A = nn.Linear(dim, dim, bias=True)
        self.B = nn.Linear(dim, dim, bias=True)
        self.C = nn.Linear(dim, dim, bias=True)
        self.D = nn.Linear(dim, dim, bias=True)
        self.E = nn.Linear(dim, dim, bias=True)
        self.bn_node_h = nn.BatchNorm1d(dim)
        self.bn_node_e = nn.BatchNorm1d(dim)

    def forward(self, h, e, src, dst):
        e_ij = self.D(h)[dst] + self.E(h)[src] + self.C(e)
        sigma = torch.sigmoid(e_ij)

        num = torch.zeros_like(h).index_add(0, dst, sigma * self.B(h)[src])
        den = torch.zeros_like(h).index_add(0, dst, sigma)
        h_new = self.A(h) + num / (den + 1e-6)

        # residual connections
        h = h + F.relu(self.bn_node_h(h_new))
        e = e + F.relu(self.bn_node_e(e_ij))
        return h, e


num_nodes = 16384
num_edges = 131072
hidden_dim = 72


def get_inputs():
    return [
        torch.randn(num_nodes, hidden_dim),
        torch.randn(num_edges, hidden_dim),
        torch.randint(0, num_nodes, (num_edges,)),
        torch.randint(0, num_nodes, (num_edges,)),
    ]


def get_init_inputs():
    return [hidden_dim]

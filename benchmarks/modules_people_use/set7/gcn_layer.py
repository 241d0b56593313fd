import torch
import torch.nn as nn


NODES = 50000
EDGES = 400000
IN_DIM = 128
OUT_DIM = 128


class Model(nn.Module):
    """Graph convolution (Kipf and Welling) with self loops and symmetric degree scaling."""

    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.lin = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.randn(out_dim) * 0.05)

    def forward(self, x, edge_index):
        n = x.size(0)
        loops = torch.arange(n, device=x.device)
        src = torch.cat([edge_index[0], loops])
        dst = torch.cat([edge_index[1], loops])

        ones = torch.ones(dst.numel(), dtype=x.dtype, device=x.device)
        deg = torch.zeros(n, dtype=x.dtype, device=x.device).scatter_add(0, dst, ones)
        inv_sqrt = deg.rsqrt()
        norm = inv_sqrt[src] * inv_sqrt[dst]

        h = self.lin(x)
        msg = h[src] * norm.unsqueeze(1)
        out = torch.zeros_like(h).index_add(0, dst, msg)
        return torch.relu(out + self.bias)


def get_inputs():
    x = torch.randn(NODES, IN_DIM)
    edge_index = torch.randint(0, NODES, (2, EDGES))
    return [x, edge_index]


def get_init_inputs():
    return [IN_DIM, OUT_DIM]

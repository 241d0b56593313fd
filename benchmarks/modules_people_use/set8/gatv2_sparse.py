import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_NODES = 20000
NUM_EDGES = 200000
IN_CHANNELS = 128
EDGE_DIM = 16
HEADS = 4
OUT_CHANNELS = 32


class Model(nn.Module):
    """GATv2 convolution over an edge list, with edge features and a residual."""

    def __init__(self, in_channels, out_channels, heads, edge_dim, negative_slope=0.2):
        super().__init__()
        self.heads = heads
        self.out_channels = out_channels
        self.negative_slope = negative_slope
        self.lin_l = nn.Linear(in_channels, heads * out_channels)
        self.lin_r = nn.Linear(in_channels, heads * out_channels)
        self.lin_edge = nn.Linear(edge_dim, heads * out_channels, bias=False)
        self.res = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels))
        nn.init.xavier_uniform_(self.att)

    def forward(self, x, edge_index, edge_attr):
        H, C = self.heads, self.out_channels
        N = x.size(0)
        src, dst = edge_index[0], edge_index[1]

        x_l = self.lin_l(x).view(N, H, C)
        x_r = self.lin_r(x).view(N, H, C)
        x_j = x_l.index_select(0, src)
        e = x_j + x_r.index_select(0, dst) + self.lin_edge(edge_attr).view(-1, H, C)
        e = F.leaky_relu(e, self.negative_slope)
        score = (e * self.att).sum(dim=-1)

        # softmax over the incoming edges of every node
        idx = dst.unsqueeze(-1).expand_as(score)
        smax = torch.full((N, H), float("-inf"), device=x.device, dtype=x.dtype)
        smax = smax.scatter_reduce(0, idx, score.detach(), reduce="amax", include_self=True)
        p = torch.exp(score - smax.index_select(0, dst))
        denom = torch.zeros(N, H, device=x.device, dtype=x.dtype).scatter_add(0, idx, p)
        alpha = p / (denom.index_select(0, dst) + 1e-16)

        out = torch.zeros(N, H, C, device=x.device, dtype=x.dtype)
        out = out.index_add(0, dst, x_j * alpha.unsqueeze(-1))
        return F.elu(out.view(N, H * C) + self.res(x) + self.bias)


def get_inputs():
    return [
        torch.randn(NUM_NODES, IN_CHANNELS),
        torch.randint(0, NUM_NODES, (2, NUM_EDGES)),
        torch.randn(NUM_EDGES, EDGE_DIM),
    ]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS, HEADS, EDGE_DIM]

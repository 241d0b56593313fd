import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Multi-head graph attention layer on dense adjacency matrices."""

    def __init__(self, in_features, out_features, n_heads, alpha=0.2):
        super().__init__()
        self.n_heads = n_heads
        self.n_hidden = out_features // n_heads
        self.W = nn.Linear(in_features, out_features, bias=False)
        self.a_src = nn.Parameter(torch.empty(n_heads, self.n_hidden))
        self.a_dst = nn.Parameter(torch.empty(n_heads, self.n_hidden))
        nn.init.xavier_uniform_(self.a_src, gain=1.414)
        nn.init.xavier_uniform_(self.a_dst, gain=1.414)
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.leakyrelu = nn.LeakyReLU(alpha)

    def forward(self, h, adj):
        B, N, _ = h.size()
        eye = torch.eye(N, dtype=torch.bool, device=h.device)
        adj = (adj > 0) | eye

        g = self.W(h).view(B, N, self.n_heads, self.n_hidden)
        f_src = torch.einsum("bnhd,hd->bhn", g, self.a_src)
        f_dst = torch.einsum("bnhd,hd->bhn", g, self.a_dst)
        e = self.leakyrelu(f_src.unsqueeze(-1) + f_dst.unsqueeze(-2))

        zero_vec = -9e15 * torch.ones_like(e)
        attention = torch.where(adj.unsqueeze(1), e, zero_vec)
        attention = F.softmax(attention, dim=-1)
        h_prime = torch.einsum("bhij,bjhd->bihd", attention, g)
        return F.elu(h_prime.reshape(B, N, -1) + self.bias)


n_graphs = 16
n_nodes = 128
in_feat = 64
out_feat = 128
heads = 8


def get_inputs():
    return [
        torch.randn(n_graphs, n_nodes, in_feat),
        torch.randint(0, 2, (n_graphs, n_nodes, n_nodes)),
    ]


def get_init_inputs():
    return [in_feat, out_feat, heads]

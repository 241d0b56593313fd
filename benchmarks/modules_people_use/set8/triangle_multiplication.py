import torch
from torch import nn

N_RES = 256
C_Z = 128
C_HIDDEN = 128


class Model(nn.Module):
    """Triangle multiplicative update with outgoing edges (AlphaFold 2, algorithm 11)."""

    def __init__(self, c_z, c_hidden):
        super().__init__()
        self.layer_norm_in = nn.LayerNorm(c_z)
        self.layer_norm_out = nn.LayerNorm(c_hidden)
        self.linear_a_p = nn.Linear(c_z, c_hidden)
        self.linear_a_g = nn.Linear(c_z, c_hidden)
        self.linear_b_p = nn.Linear(c_z, c_hidden)
        self.linear_b_g = nn.Linear(c_z, c_hidden)
        self.linear_g = nn.Linear(c_z, c_z)
        self.linear_z = nn.Linear(c_hidden, c_z)

    def forward(self, z, mask):
        mask = mask.unsqueeze(-1)
        z_in = z
        z = self.layer_norm_in(z)
        a = mask * torch.sigmoid(self.linear_a_g(z)) * self.linear_a_p(z)
        b = mask * torch.sigmoid(self.linear_b_g(z)) * self.linear_b_p(z)
        x = torch.einsum("bikc,bjkc->bijc", a, b)
        x = self.linear_z(self.layer_norm_out(x))
        g = torch.sigmoid(self.linear_g(z))
        return z_in + x * g


def get_inputs():
    seq_mask = torch.ones(1, N_RES)
    seq_mask[:, -20:] = 0.0
    return [torch.randn(1, N_RES, N_RES, C_Z), seq_mask[:, :, None] * seq_mask[:, None, :]]


def get_init_inputs():
    return [C_Z, C_HIDDEN]

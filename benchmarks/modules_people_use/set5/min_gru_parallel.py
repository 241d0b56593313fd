import torch
import torch.nn as nn
import torch.nn.functional as F


def log_g(x):
    return torch.where(x >= 0, (F.relu(x) + 0.5).log(), -F.softplus(-x))


class Model(nn.Module):
    """minGRU layer trained in parallel: the recurrence is a Heinsen scan in log space."""

    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.to_hidden_and_gate = nn.Linear(dim, hidden_dim * 2, bias=False)
        self.to_out = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        hidden, gate = self.to_hidden_and_gate(x).chunk(2, dim=-1)

        log_coeffs = -F.softplus(gate)
        log_z = -F.softplus(-gate)
        log_values = log_z + log_g(hidden)

        a_star = log_coeffs.cumsum(dim=1)
        log_h0_plus_b_star = (log_values - a_star).logcumsumexp(dim=1)
        out = (a_star + log_h0_plus_b_star).exp()
        return self.to_out(out)


batch_size = 8
seq_len = 512
dim = 256
hidden_dim = 384


def get_inputs():
    return [torch.randn(batch_size, seq_len, dim)]


def get_init_inputs():
    return [dim, hidden_dim]

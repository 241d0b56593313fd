import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
TIME = 168
N_VARS = 10
HIDDEN = 64


class GatedResidualNetwork(nn.Module):
    def __init__(self, d_in, d_hidden, d_out, d_context=None):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.ctx = nn.Linear(d_context, d_hidden, bias=False) if d_context is not None else None
        self.fc2 = nn.Linear(d_hidden, d_hidden)
        self.gate = nn.Linear(d_hidden, 2 * d_out)
        self.skip = nn.Linear(d_in, d_out) if d_in != d_out else nn.Identity()
        self.norm = nn.LayerNorm(d_out)

    def forward(self, x, c=None):
        h = self.fc1(x)
        if self.ctx is not None:
            h = h + self.ctx(c)
        h = self.fc2(F.elu(h))
        h = F.glu(self.gate(h), dim=-1)
        return self.norm(h + self.skip(x))


class Model(nn.Module):
    """Variable selection network of the Temporal Fusion Transformer."""

    def __init__(self, n_vars, hidden):
        super().__init__()
        self.flat_grn = GatedResidualNetwork(n_vars * hidden, hidden, n_vars, d_context=hidden)
        self.var_grns = nn.ModuleList([GatedResidualNetwork(hidden, hidden, hidden) for _ in range(n_vars)])

    def forward(self, embeddings, static_context):
        # embeddings: (batch, time, n_vars, hidden)
        flat = embeddings.flatten(start_dim=2)
        weights = self.flat_grn(flat, static_context.unsqueeze(1))
        weights = F.softmax(weights, dim=-1).unsqueeze(-1)
        processed = [grn(embeddings[:, :, i]) for i, grn in enumerate(self.var_grns)]
        processed = torch.stack(processed, dim=2)
        return (weights * processed).sum(dim=2)


def get_inputs():
    return [torch.randn(BATCH, TIME, N_VARS, HIDDEN), torch.randn(BATCH, HIDDEN)]


def get_init_inputs():
    return [N_VARS, HIDDEN]

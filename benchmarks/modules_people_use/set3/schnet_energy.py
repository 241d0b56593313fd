import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class ShiftedSoftplus(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = math.log(2.0)

    def forward(self, x):
        return F.softplus(x) - self.shift


class Model(nn.Module):
    """SchNet-like molecular energy: one continuous-filter interaction block and an atomwise readout."""

    def __init__(self, max_z=20, n_features=64, n_gaussians=32, cutoff=5.0):
        super().__init__()
        self.cutoff = cutoff
        self.embedding = nn.Embedding(max_z, n_features)
        offset = torch.linspace(0.0, cutoff, n_gaussians)
        self.register_buffer("offset", offset)
        self.coeff = -0.5 / (cutoff / (n_gaussians - 1)) ** 2
        self.filter_net = nn.Sequential(
            nn.Linear(n_gaussians, n_features), ShiftedSoftplus(), nn.Linear(n_features, n_features)
        )
        self.in2f = nn.Linear(n_features, n_features, bias=False)
        self.f2out = nn.Sequential(
            nn.Linear(n_features, n_features), ShiftedSoftplus(), nn.Linear(n_features, n_features)
        )
        self.readout = nn.Sequential(
            nn.Linear(n_features, n_features // 2), ShiftedSoftplus(), nn.Linear(n_features // 2, 1)
        )

    def forward(self, z, pos, n_atoms):
        B, N = z.shape
        atom_mask = (torch.arange(N, device=z.device)[None] < n_atoms[:, None]).float()
        pair_mask = atom_mask[:, :, None] * atom_mask[:, None, :]
        pair_mask = pair_mask * (1.0 - torch.eye(N, device=z.device))

        diff = pos[:, :, None, :] - pos[:, None, :, :]
        r = torch.sqrt((diff ** 2).sum(-1) + 1e-12)
        rbf = torch.exp(self.coeff * (r[..., None] - self.offset) ** 2)
        fcut = 0.5 * (torch.cos(math.pi * r / self.cutoff) + 1.0) * (r < self.cutoff).float()

        W = self.filter_net(rbf) * (fcut * pair_mask).unsqueeze(-1)   # B, N, N, F
        x = self.embedding(z)
        y = self.in2f(x)
        y = (y[:, None, :, :] * W).sum(dim=2)
        x = x + self.f2out(y)

        e = self.readout(x).squeeze(-1) * atom_mask
        return e.sum(dim=1)


batch_size = 16
max_atoms = 40


def get_inputs():
    return [
        torch.randint(1, 20, (batch_size, max_atoms)),
        torch.randn(batch_size, max_atoms, 3) * 2.0,
        torch.randint(5, max_atoms + 1, (batch_size,)),
    ]


def get_init_inputs():
    return [20, 64, 32, 5.0]

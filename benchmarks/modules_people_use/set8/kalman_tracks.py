import torch
import torch.nn as nn

N_TRACKS = 65536
DT = 0.1
GATE = 9.4877  # chi2, 4 dof, 95 %


class Model(nn.Module):
    """Predict and gated update of a constant-velocity Kalman filter for many tracks at once."""

    def __init__(self, dt, gate, q=1.0, r=0.05):
        super().__init__()
        self.gate = gate
        eye = torch.eye(4)
        f = torch.eye(8)
        f[:4, 4:] = dt * eye
        qmat = torch.zeros(8, 8)
        qmat[:4, :4] = dt ** 4 / 4 * eye
        qmat[:4, 4:] = dt ** 3 / 2 * eye
        qmat[4:, :4] = dt ** 3 / 2 * eye
        qmat[4:, 4:] = dt ** 2 * eye
        self.register_buffer("F", f)
        self.register_buffer("H", torch.eye(4, 8))
        self.register_buffer("Q", q * qmat)
        self.register_buffer("R", r * eye)
        self.register_buffer("I", torch.eye(8))

    def forward(self, mean, cov, z, detected):
        # predict
        mean = mean @ self.F.T
        cov = self.F @ cov @ self.F.T + self.Q

        # innovation
        y = z - mean @ self.H.T
        ph_t = cov @ self.H.T
        s = self.H @ ph_t + self.R
        chol = torch.linalg.cholesky(s)
        k = torch.cholesky_solve(ph_t.mT, chol).mT

        # gate by the squared Mahalanobis distance
        white = torch.linalg.solve_triangular(chol, y.unsqueeze(-1), upper=False).squeeze(-1)
        maha = white.square().sum(-1)
        ok = detected & (maha < self.gate)

        # Joseph form
        ikh = self.I - k @ self.H
        new_cov = ikh @ cov @ ikh.mT + k @ self.R @ k.mT
        new_mean = mean + torch.einsum("nij,nj->ni", k, y)
        mean = torch.where(ok[:, None], new_mean, mean)
        cov = torch.where(ok[:, None, None], new_cov, cov)
        return mean, 0.5 * (cov + cov.mT)


def get_inputs():
    mean = torch.randn(N_TRACKS, 8)
    a = 0.3 * torch.randn(N_TRACKS, 8, 8)
    cov = a @ a.mT + 0.05 * torch.eye(8)
    z = mean[:, :4] + DT * mean[:, 4:] + 0.8 * torch.randn(N_TRACKS, 4)
    return [mean, cov, z, torch.rand(N_TRACKS) < 0.9]


def get_init_inputs():
    return [DT, GATE]

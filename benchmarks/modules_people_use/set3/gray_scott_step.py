import torch
import torch.nn as nn


def laplacian(z):
    # 9-point stencil, periodic boundaries
    up, down = torch.roll(z, 1, -2), torch.roll(z, -1, -2)
    left, right = torch.roll(z, 1, -1), torch.roll(z, -1, -1)
    diag = (
        torch.roll(up, 1, -1) + torch.roll(up, -1, -1)
        + torch.roll(down, 1, -1) + torch.roll(down, -1, -1)
    )
    return 0.2 * (up + down + left + right) + 0.05 * diag - z


class Model(nn.Module):
    """One explicit Euler step of the Gray-Scott reaction-diffusion system."""

    def __init__(self, Du=0.16, Dv=0.08, feed=0.035, kill=0.065, dt=1.0):
        super().__init__()
        self.Du, self.Dv = Du, Dv
        self.F, self.k = feed, kill
        self.dt = dt

    def forward(self, u, v):
        uvv = u * v * v
        du = self.Du * laplacian(u) - uvv + self.F * (1 - u)
        dv = self.Dv * laplacian(v) + uvv - (self.F + self.k) * v
        u_new = torch.clamp(u + self.dt * du, 0.0, 1.0)
        v_new = torch.clamp(v + self.dt * dv, 0.0, 1.0)
        return torch.stack((u_new, v_new), dim=1)


n_sims = 16
grid = 256


def get_inputs():
    return [torch.rand(n_sims, grid, grid), torch.rand(n_sims, grid, grid)]


def get_init_inputs():
    return [0.16, 0.08, 0.035, 0.065, 1.0]

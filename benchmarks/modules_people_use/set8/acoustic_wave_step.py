import torch
import torch.nn as nn
import torch.nn.functional as F

SHOTS = 8
NZ, NX = 768, 1024
DX = 10.0
DT = 1e-3
N_SPONGE = 40


class Model(nn.Module):
    """One leapfrog step of the 2D acoustic wave equation, 4th order in space, with sponge borders."""

    def __init__(self, nz, nx, dx, dt, n_sponge):
        super().__init__()
        self.dx = dx
        self.dt = dt
        iz = torch.arange(nz).float()
        ix = torch.arange(nx).float()
        dz_edge = torch.minimum(iz, nz - 1 - iz)[:, None]
        dx_edge = torch.minimum(ix, nx - 1 - ix)[None, :]
        dist = (n_sponge - torch.minimum(dz_edge, dx_edge)).clamp(min=0)
        self.register_buffer("taper", torch.exp(-((0.015 * dist) ** 2)))

    def forward(self, p, p_prev, velocity, source, src_z, src_x):
        u = F.pad(p, (2, 2, 2, 2))
        d2z = -(u[:, 4:, 2:-2] + u[:, :-4, 2:-2]) + 16 * (u[:, 3:-1, 2:-2] + u[:, 1:-3, 2:-2]) - 30 * p
        d2x = -(u[:, 2:-2, 4:] + u[:, 2:-2, :-4]) + 16 * (u[:, 2:-2, 3:-1] + u[:, 2:-2, 1:-3]) - 30 * p
        lap = (d2z + d2x) / (12 * self.dx ** 2)
        c2dt2 = (velocity * self.dt) ** 2
        p_next = 2 * p - self.taper * p_prev + c2dt2 * lap
        shot = torch.arange(p.shape[0], device=p.device)
        p_next = p_next.index_put((shot, src_z, src_x), source * self.dt ** 2, accumulate=True)
        return p_next * self.taper


def get_inputs():
    return [
        torch.randn(SHOTS, NZ, NX),
        torch.randn(SHOTS, NZ, NX),
        1500 + 3000 * torch.rand(NZ, NX),
        1e6 * torch.randn(SHOTS),
        torch.randint(N_SPONGE, 2 * N_SPONGE, (SHOTS,)),
        torch.randint(N_SPONGE, NX - N_SPONGE, (SHOTS,)),
    ]


def get_init_inputs():
    return [NZ, NX, DX, DT, N_SPONGE]

import torch
from torch import nn


class Model(nn.Module):
    """Finite-difference residual of the viscous Burgers equation, u_t + u u_x - nu u_xx, on the inner grid points."""

    def __init__(self, viscosity, dx, dt):
        super().__init__()
        self.nu = viscosity
        self.dx = dx
        self.dt = dt

    def forward(self, u):
        # u: (batch, time, space)
        centre = u[:, 1:-1, 1:-1]
        left, right = u[:, 1:-1, :-2], u[:, 1:-1, 2:]
        u_t = (u[:, 2:, 1:-1] - u[:, :-2, 1:-1]) / (2 * self.dt)
        u_x = (right - left) / (2 * self.dx)
        u_xx = (right - 2 * centre + left) / self.dx ** 2
        return u_t + centre * u_x - self.nu * u_xx


BATCH = 16
NT = 201
NX = 1024


def get_inputs():
    return [torch.randn(BATCH, NT, NX)]


def get_init_inputs():
    return [0.01, 0.125, 0.0625]

import torch
import torch.nn as nn


PARTICLES = 2000000
CHARGE_TO_MASS = -1.0
TIME_STEP = 0.05
LIGHT_SPEED = 1.0


class Model(nn.Module):
    """Relativistic Boris push of a particle-in-cell code: new positions, momenta and kinetic energies."""

    def __init__(self, charge_to_mass, time_step, light_speed):
        super().__init__()
        self.half = 0.5 * charge_to_mass * time_step
        self.time_step = time_step
        self.inv_c2 = 1.0 / light_speed**2

    def gamma(self, u):
        return torch.sqrt(1.0 + (u * u).sum(dim=-1, keepdim=True) * self.inv_c2)

    def forward(self, position, u, electric, magnetic):
        kick = self.half * electric
        u_minus = u + kick
        t = self.half * magnetic / self.gamma(u_minus)
        s = 2.0 * t / (1.0 + t.square().sum(dim=-1, keepdim=True))
        u_prime = u_minus + torch.cross(u_minus, t, dim=-1)
        u_plus = u_minus + torch.cross(u_prime, s, dim=-1)
        u_new = u_plus + kick
        gamma_new = self.gamma(u_new)
        position_new = position + self.time_step * u_new / gamma_new
        energy = (gamma_new - 1.0).squeeze(-1) / self.inv_c2
        return position_new, u_new, energy


def get_inputs():
    position = torch.rand(PARTICLES, 3) * 64.0
    u = torch.randn(PARTICLES, 3) * 0.8
    electric = torch.randn(PARTICLES, 3)
    magnetic = torch.randn(PARTICLES, 3) * 0.5 + torch.tensor([0.0, 0.0, 3.0])
    return [position, u, electric, magnetic]


def get_init_inputs():
    return [CHARGE_TO_MASS, TIME_STEP, LIGHT_SPEED]

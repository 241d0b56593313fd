import torch
import torch.nn as nn

BATCH = 4
HEIGHT = 512
WIDTH = 512
TAU = 0.6

VELOCITIES = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


class Model(nn.Module):
    """One D2Q9 lattice Boltzmann step: BGK collision, bounce-back at solids, periodic streaming."""

    def __init__(self, tau: float):
        super().__init__()
        self.omega = 1.0 / tau
        c = torch.tensor(VELOCITIES, dtype=torch.float32)
        self.register_buffer("cx", c[:, 0].view(1, 9, 1, 1))
        self.register_buffer("cy", c[:, 1].view(1, 9, 1, 1))
        self.register_buffer("w", torch.tensor(WEIGHTS).view(1, 9, 1, 1))
        self.register_buffer("opposite", torch.tensor(OPPOSITE))

    def forward(self, f: torch.Tensor, solid: torch.Tensor):
        rho = f.sum(dim=1, keepdim=True)
        ux = (f * self.cx).sum(dim=1, keepdim=True) / rho
        uy = (f * self.cy).sum(dim=1, keepdim=True) / rho

        cu = self.cx * ux + self.cy * uy
        usq = ux * ux + uy * uy
        feq = self.w * rho * (1.0 + 3.0 * cu + 4.5 * cu * cu - 1.5 * usq)
        post = torch.lerp(f, feq, self.omega)
        post = torch.where(solid, f[:, self.opposite], post)

        streamed = []
        for i, (dx, dy) in enumerate(VELOCITIES):
            streamed.append(torch.roll(post[:, i], shifts=(dy, dx), dims=(-2, -1)))
        return torch.stack(streamed, dim=1), torch.cat([ux, uy], dim=1)


def get_inputs():
    w = torch.tensor(WEIGHTS).view(1, 9, 1, 1)
    f = w * (1.0 + 0.1 * torch.rand(BATCH, 9, HEIGHT, WIDTH))
    solid = torch.rand(BATCH, 1, HEIGHT, WIDTH) < 0.1
    return [f, solid]


def get_init_inputs():
    return [TAU]

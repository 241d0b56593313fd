import torch
import torch.nn as nn


CELLS = 40
SPACING = 1.1
CUTOFF = 2.5
SKIN = 0.2
EPSILON = 1.0
SIGMA = 1.0


class Model(nn.Module):
    """Lennard-Jones energies, forces and virial from a half neighbour list in a periodic box."""

    def __init__(self, epsilon, sigma, cutoff, box):
        super().__init__()
        self.epsilon = epsilon
        self.sigma2 = sigma ** 2
        self.cutoff2 = cutoff ** 2
        self.box = box
        ratio6 = (sigma / cutoff) ** 6
        self.shift = 4.0 * epsilon * (ratio6 ** 2 - ratio6)

    def forward(self, pos, pairs):
        i, j = pairs[0], pairs[1]
        delta = pos[i] - pos[j]
        delta = delta - self.box * torch.round(delta / self.box)
        r2 = (delta * delta).sum(dim=-1)
        inside = r2 < self.cutoff2

        inv_r2 = 1.0 / r2
        s6 = (self.sigma2 * inv_r2) ** 3
        s12 = s6 * s6
        energy = 4.0 * self.epsilon * (s12 - s6) - self.shift
        energy = torch.where(inside, energy, torch.zeros_like(energy))
        slope = 24.0 * self.epsilon * (2.0 * s12 - s6) * inv_r2
        slope = torch.where(inside, slope, torch.zeros_like(slope))
        pair_force = slope.unsqueeze(-1) * delta

        forces = torch.zeros_like(pos)
        forces = forces.index_add(0, i, pair_force).index_add(0, j, -pair_force)
        half = 0.5 * energy
        atom_energy = torch.zeros_like(pos[:, 0])
        atom_energy = atom_energy.index_add(0, i, half).index_add(0, j, half)
        virial = (slope * r2).sum()
        return atom_energy, forces, virial


def get_inputs():
    n = CELLS
    grid = torch.arange(n)
    cell = torch.stack(torch.meshgrid(grid, grid, grid, indexing="ij"), dim=-1).view(-1, 3)
    pos = SPACING * cell.float() + 0.05 * torch.randn(n ** 3, 3)

    # half shell of lattice offsets within the cutoff and the skin
    reach = torch.arange(-2, 3)
    off = torch.cartesian_prod(reach, reach, reach)
    near = SPACING * off.float().norm(dim=1) < CUTOFF + SKIN
    rank = off[:, 0] * 25 + off[:, 1] * 5 + off[:, 2]
    off = off[near & (rank > 0)]

    other = (cell.unsqueeze(1) + off) % n
    j = ((other[..., 0] * n + other[..., 1]) * n + other[..., 2]).reshape(-1)
    i = torch.arange(n ** 3).repeat_interleave(off.size(0))
    return [pos, torch.stack([i, j])]


def get_init_inputs():
    return [EPSILON, SIGMA, CUTOFF, SPACING * CELLS]

import math

import torch
import torch.nn as nn


BATCH = 262144
HALF_PI = math.pi / 2.0
DH_A = [0.0, 0.0, 0.0, 0.0825, -0.0825, 0.0, 0.088]
DH_D = [0.333, 0.0, 0.316, 0.0, 0.384, 0.0, 0.107]
DH_ALPHA = [0.0, -HALF_PI, HALF_PI, HALF_PI, -HALF_PI, HALF_PI, HALF_PI]


def link_transform(a, d, alpha):
    ca, sa = math.cos(alpha), math.sin(alpha)
    return [
        [1.0, 0.0, 0.0, a],
        [0.0, ca, -sa, -d * sa],
        [0.0, sa, ca, d * ca],
        [0.0, 0.0, 0.0, 1.0],
    ]


class Model(nn.Module):
    """Forward kinematics of a seven-joint arm: position of each joint and orientation of the flange."""

    def __init__(self, a, d, alpha):
        super().__init__()
        links = [link_transform(*row) for row in zip(a, d, alpha)]
        self.register_buffer("links", torch.tensor(links))

    def forward(self, angles):
        c, s = torch.cos(angles), torch.sin(angles)
        zero, one = torch.zeros_like(c), torch.ones_like(c)
        spin = torch.stack(
            [c, -s, zero, zero, s, c, zero, zero, zero, zero, one, zero, zero, zero, zero, one], -1
        )
        local = torch.matmul(self.links, spin.view(*angles.shape, 4, 4))
        pose = local[:, 0]
        positions = [pose[:, :3, 3]]
        for joint in range(1, angles.shape[1]):
            pose = torch.bmm(pose, local[:, joint])
            positions.append(pose[:, :3, 3])
        return torch.stack(positions, dim=1), pose[:, :3, :3].contiguous()


def get_inputs():
    return [(torch.rand(BATCH, len(DH_A)) * 2.0 - 1.0) * 2.7]


def get_init_inputs():
    return [DH_A, DH_D, DH_ALPHA]

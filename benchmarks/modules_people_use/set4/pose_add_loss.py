import torch
import torch.nn as nn
import torch.nn.functional as F


def compute_rotation_matrix_from_ortho6d(poses):
    x_raw = poses[:, 0:3]
    y_raw = poses[:, 3:6]

    x = F.normalize(x_raw, dim=1)
    z = torch.cross(x, y_raw, dim=1)
    z = F.normalize(z, dim=1)
    y = torch.cross(z, x, dim=1)
    return torch.stack((x, y, z), 2)  # batch*3*3


class Model(nn.Module):
    """Average distance (ADD) loss of a 6-DoF object pose head, in object diameters, with a smooth-L1 cap."""

    def __init__(self, beta: float = 0.1):
        super().__init__()
        self.beta = beta

    def forward(self, pred_r6d, pred_t, model_points, target_points, diameter):
        R = compute_rotation_matrix_from_ortho6d(pred_r6d)
        pred_points = torch.bmm(model_points, R.transpose(1, 2)) + pred_t.unsqueeze(1)
        dis = torch.norm(pred_points - target_points, dim=2).mean(dim=1)
        add = dis / diameter.clamp(min=0.05)
        loss = F.smooth_l1_loss(add, torch.zeros_like(add), beta=self.beta)
        return loss, dis


batch_size = 256
num_points = 2000


def get_inputs():
    return [
        torch.randn(batch_size, 6),
        torch.randn(batch_size, 3),
        torch.randn(batch_size, num_points, 3),
        torch.randn(batch_size, num_points, 3),
        torch.rand(batch_size),
    ]


def get_init_inputs():
    return [0.1]

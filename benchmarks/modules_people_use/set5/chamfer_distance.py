import torch
import torch.nn as nn


class Model(nn.Module):
    """Symmetric squared Chamfer distance between predicted and reference point clouds, one value per sample."""

    def __init__(self):
        super().__init__()

    def forward(self, pred, target):
        xx = pred.pow(2).sum(dim=-1).unsqueeze(2)  # [B, N, 1]
        yy = target.pow(2).sum(dim=-1).unsqueeze(1)  # [B, 1, M]
        dist = (xx + yy - 2.0 * torch.bmm(pred, target.transpose(1, 2))).clamp(min=0.0)
        pred_to_target = dist.min(dim=2)[0].mean(dim=1)
        target_to_pred = dist.min(dim=1)[0].mean(dim=1)
        return pred_to_target + target_to_pred


batch_size = 16
num_pred = 2048
num_target = 1536


def get_inputs():
    return [torch.randn(batch_size, num_pred, 3), torch.randn(batch_size, num_target, 3)]


def get_init_inputs():
    return []

import torch
import torch.nn as nn
import torch.nn.functional as F


def distribution_focal_loss(pred, label):
    dis_left = label.long()
    dis_right = dis_left + 1
    weight_left = dis_right.float() - label
    weight_right = label - dis_left.float()
    return F.cross_entropy(pred, dis_left, reduction='none') * weight_left \
        + F.cross_entropy(pred, dis_right, reduction='none') * weight_right


class Model(nn.Module):
    """Distribution focal loss of GFL over the four sides of the positive boxes."""

    def __init__(self, reg_max: int = 16, loss_weight: float = 0.25):
        super().__init__()
        self.reg_max = reg_max
        self.loss_weight = loss_weight

    def forward(self, bbox_pred, target, weight):
        pred_corners = bbox_pred.reshape(-1, self.reg_max + 1)
        target_corners = target.reshape(-1).clamp(min=0, max=self.reg_max - 0.1)
        loss = distribution_focal_loss(pred_corners, target_corners)
        loss = loss * weight[:, None].expand(-1, 4).reshape(-1)
        return self.loss_weight * loss.sum() / weight.sum().clamp(min=1.0) / 4.0


num_pos = 40000
reg_max = 16


def get_inputs():
    return [
        torch.randn(num_pos, 4 * (reg_max + 1)),
        torch.rand(num_pos, 4) * reg_max,
        torch.rand(num_pos),
    ]


def get_init_inputs():
    return [reg_max]

import torch
import torch.nn as nn
import torch.nn.functional as F
from typing import List


class Model(nn.Module):
    """Soft Dice plus focal loss per image for multi-organ segmentation, background left out of the Dice."""

    def __init__(self, class_weights: List[float], gamma: float = 2.0, lambda_dice: float = 1.0,
                 lambda_focal: float = 1.0, smooth: float = 1e-5):
        super().__init__()
        self.register_buffer("class_weights", torch.tensor(class_weights))
        self.num_classes = len(class_weights)
        self.gamma = gamma
        self.lambda_dice = lambda_dice
        self.lambda_focal = lambda_focal
        self.smooth = smooth

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        onehot = F.one_hot(target, self.num_classes).permute(0, 3, 1, 2).float()
        log_p = F.log_softmax(logits, dim=1)
        p = log_p.exp()

        # dice
        p_fg, t_fg = p[:, 1:], onehot[:, 1:]
        inter = (p_fg * t_fg).sum(dim=(2, 3))
        denom = p_fg.sum(dim=(2, 3)) + t_fg.sum(dim=(2, 3))
        dice = 1.0 - (2.0 * inter + self.smooth) / (denom + self.smooth)
        dice = dice.mean(dim=1)

        # focal
        w = self.class_weights.view(1, -1, 1, 1)
        focal = -(w * onehot * (1.0 - p) ** self.gamma * log_p).sum(dim=1)
        focal = focal.mean(dim=(1, 2))

        return self.lambda_dice * dice + self.lambda_focal * focal


BATCH = 16
SIZE = 192
CLASS_WEIGHTS = [0.2, 1.0, 1.5, 2.0, 1.0]


def get_inputs():
    return [
        torch.randn(BATCH, len(CLASS_WEIGHTS), SIZE, SIZE),
        torch.randint(0, len(CLASS_WEIGHTS), (BATCH, SIZE, SIZE)),
    ]


def get_init_inputs():
    return [CLASS_WEIGHTS, 2.0]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Focal loss of binary logits."""

    def __init__(self, alpha=0.25, gamma=2.0):
        super().__init__()
        self.alpha = alpha
        self.gamma = gamma

    def forward(self, inputs, targets):
        bce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        p = torch.sigmoid(inputs)
        p_t = p * targets + (1 - p) * (1 - targets)
        alpha_t = self.alpha * targets + (1 - self.alpha) * (1 - targets)
        return (alpha_t * (1 - p_t) ** self.gamma * bce).mean()


def get_inputs():
    return [torch.randn(4096, 91), torch.randint(0, 2, (4096, 91)).float()]


def get_init_inputs():
    return []

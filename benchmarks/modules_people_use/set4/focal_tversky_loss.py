import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Multi-class focal Tversky loss for volumetric segmentation, background left out."""

    def __init__(self, num_classes, alpha=0.3, beta=0.7, gamma=0.75, smooth=1e-5):
        super(Model, self).__init__()
        self.num_classes = num_classes
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.smooth = smooth

    def forward(self, logits, target):
        probs = F.softmax(logits, dim=1)
        onehot = F.one_hot(target, self.num_classes).permute(0, 4, 1, 2, 3).to(probs.dtype)

        dims = (2, 3, 4)
        tp = torch.sum(probs * onehot, dims)
        fp = torch.sum(probs, dims) - tp
        fn = torch.sum(onehot, dims) - tp
        tversky = (tp + self.smooth) / (tp + self.alpha * fp + self.beta * fn + self.smooth)
        return torch.pow(1.0 - tversky[:, 1:], self.gamma).mean()


batch_size = 2
num_classes = 4
depth, height, width = 96, 96, 96


def get_inputs():
    return [
        torch.randn(batch_size, num_classes, depth, height, width),
        torch.randint(0, num_classes, (batch_size, depth, height, width)),
    ]


def get_init_inputs():
    return [num_classes]

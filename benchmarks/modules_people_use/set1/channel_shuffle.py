import torch
import torch.nn as nn


class Model(nn.Module):
    """Mixes the channels of groups, as in ShuffleNet."""

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, self.groups, c // self.groups, h, w)
        return x.transpose(1, 2).reshape(b, c, h, w)


def get_inputs():
    return [torch.randn(32, 240, 28, 28)]


def get_init_inputs():
    return [3]

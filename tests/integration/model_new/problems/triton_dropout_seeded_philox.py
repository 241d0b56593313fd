import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return x + 0 * x


def get_inputs():
    return [torch.randn(300)]


def get_init_inputs():
    return []

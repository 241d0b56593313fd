import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return x[:, y]


def get_inputs():
    return [torch.randn(20, 32), torch.randint(0, 32, (32,))]


def get_init_inputs():
    return []

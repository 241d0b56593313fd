import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return 2.0 * (2.0 * x + 1.0) + 1.0


def get_inputs():
    return [torch.randn(30, 64)]


def get_init_inputs():
    return []

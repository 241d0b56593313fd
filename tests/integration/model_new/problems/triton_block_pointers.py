import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.randn(48, 40, dtype=torch.float16), torch.randn(40, 56, dtype=torch.float16)]


def get_init_inputs():
    return []

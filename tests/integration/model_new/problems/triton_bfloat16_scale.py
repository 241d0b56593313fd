import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return (x * 3.0).relu()


def get_inputs():
    return [torch.randn(100, 77, dtype=torch.bfloat16)]


def get_init_inputs():
    return []

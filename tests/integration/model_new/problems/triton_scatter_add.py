import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return torch.zeros(10, x.shape[1], device=x.device).index_add(0, y, x)


def get_inputs():
    return [torch.randn(60, 16), torch.randint(0, 10, (60,))]


def get_init_inputs():
    return []

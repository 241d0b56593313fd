import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(4, 6, 3)
    def forward(self, x):
        return self.c(x)


def get_inputs():
    return [torch.randn(2, 4, 60)]


def get_init_inputs():
    return []

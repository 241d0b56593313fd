"""A problem in KernelBench form, written for the tests: a linear layer with fixed groups."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, num_groups, eps):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.GroupNorm(num_groups, out_features, eps=eps)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


batch_size = 1024 * 4
in_features, out_features = 2048, 4096
num_groups = 16
eps = 1e-5


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, num_groups, eps]

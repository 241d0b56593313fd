"""A problem in KernelBench's form: integer labels, a scalar input, and a log of positive values."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, weight, labels):
        return -torch.log(x).gather(1, labels[:, None]).squeeze(1) * weight


batch_size = 65536
num_classes = 1000


def get_inputs():
    probabilities = torch.rand(batch_size, num_classes).softmax(dim=-1)
    return [probabilities, 2.5, torch.randint(0, num_classes, (batch_size,))]


def get_init_inputs():
    return []

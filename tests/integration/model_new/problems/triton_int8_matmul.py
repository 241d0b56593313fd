import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return (x.float() @ y.float()).to(torch.int32)


def get_inputs():
    return [torch.randint(-20, 20, (32, 64), dtype=torch.int8), torch.randint(-20, 20, (64, 32), dtype=torch.int8)]


def get_init_inputs():
    return []

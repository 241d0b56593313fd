import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        x = torch.sigmoid(x)
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = x[:, t] * h + y[:, t]
            out.append(h)
        return torch.stack(out, 1)


def get_inputs():
    return [torch.rand(12, 40), torch.randn(12, 40)]


def get_init_inputs():
    return []

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return (x[None, :] == torch.arange(16, device=x.device)[:, None]).sum(1)


def get_inputs():
    return [torch.randint(0, 16, (500,))]


def get_init_inputs():
    return []

"""A function of your own as a task: the format of a KernelBench problem."""

import torch
from torch import nn


class Model(nn.Module):
    """tanh(x) * scale"""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * self.scale


rows = 256
columns = 500
"""Sizes stand in constants, so that the judge can make further shapes of them."""


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[float]:
    return [1.5]

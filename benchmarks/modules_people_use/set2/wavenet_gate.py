import torch
import torch.nn as nn


def _slice_condition(cond, layer, width):
    return cond[:, layer * width:(layer + 1) * width, :]


class Model(nn.Module):
    """Adds one layer's slice of the conditioning and applies WaveNet's tanh * sigmoid gate."""

    def __init__(self, hidden_channels, layer_index):
        super().__init__()
        self.hidden_channels = hidden_channels
        self.layer_index = layer_index

    def forward(self, x, cond):
        h = self.hidden_channels
        z = x + _slice_condition(cond, self.layer_index, 2 * h)
        return torch.tanh(z[:, :h]) * torch.sigmoid(z[:, h:])


N, HIDDEN, LAYERS, T = 16, 192, 4, 800


def get_inputs():
    return [torch.randn(N, 2 * HIDDEN, T), torch.randn(N, 2 * HIDDEN * LAYERS, T)]


def get_init_inputs():
    return [HIDDEN, 2]

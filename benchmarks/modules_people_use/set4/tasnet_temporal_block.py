import torch
import torch.nn as nn


class Model(nn.Module):
    """1-D convolutional block of Conv-TasNet with residual and skip outputs."""

    def __init__(self, io_channels, hidden_channels, skip_channels, kernel_size=3, dilation=4):
        super().__init__()
        padding = (kernel_size - 1) * dilation // 2
        self.conv_layers = nn.Sequential(
            nn.Conv1d(io_channels, hidden_channels, 1),
            nn.PReLU(),
            nn.GroupNorm(num_groups=1, num_channels=hidden_channels, eps=1e-8),
            nn.Conv1d(
                in_channels=hidden_channels,
                out_channels=hidden_channels,
                kernel_size=kernel_size,
                padding=padding,
                dilation=dilation,
                groups=hidden_channels,
            ),
            nn.PReLU(),
            nn.GroupNorm(num_groups=1, num_channels=hidden_channels, eps=1e-8),
        )
        self.res_out = nn.Conv1d(hidden_channels, io_channels, 1)
        self.skip_out = nn.Conv1d(hidden_channels, skip_channels, 1)

    def forward(self, input):
        feature = self.conv_layers(input)
        residual = self.res_out(feature)
        skip_out = self.skip_out(feature)
        return input + residual, skip_out


batch_size = 8
io_channels = 128
hidden_channels = 512
frames = 3200


def get_inputs():
    return [torch.randn(batch_size, io_channels, frames)]


def get_init_inputs():
    return [io_channels, hidden_channels, io_channels]

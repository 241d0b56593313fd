import torch
import torch.nn as nn


class Model(nn.Module):
    """Temporal shift (TSM) in front of the first 1x1 convolution of a residual block."""

    def __init__(self, channels, out_channels, n_segment=8, n_div=8):
        super().__init__()
        self.n_segment = n_segment
        self.fold_div = n_div
        self.net = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)

    @staticmethod
    def shift(x, n_segment, fold_div=3):
        nt, c, h, w = x.size()
        n_batch = nt // n_segment
        x = x.view(n_batch, n_segment, c, h, w)

        fold = c // fold_div
        out = torch.zeros_like(x)
        out[:, :-1, :fold] = x[:, 1:, :fold]  # shift left
        out[:, 1:, fold: 2 * fold] = x[:, :-1, fold: 2 * fold]  # shift right
        out[:, :, 2 * fold:] = x[:, :, 2 * fold:]  # not shift
        return out.view(nt, c, h, w)

    def forward(self, x):
        x = self.shift(x, self.n_segment, fold_div=self.fold_div)
        return self.net(x)


num_clips = 8
n_segment = 8
channels = 256
planes = 64


def get_inputs():
    return [torch.randn(num_clips * n_segment, channels, 28, 28)]


def get_init_inputs():
    return [channels, planes, n_segment]

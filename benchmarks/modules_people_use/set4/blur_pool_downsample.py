import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Anti-aliased downsampling (BlurPool) with a fixed binomial filter."""

    def __init__(self, channels, filt_size=4, stride=2):
        super().__init__()
        self.stride = stride
        self.channels = channels
        left = (filt_size - 1) // 2
        right = filt_size - 1 - left
        self.pad_sizes = (left, right, left, right)
        a = torch.tensor({3: [1., 2., 1.], 4: [1., 3., 3., 1.], 5: [1., 4., 6., 4., 1.]}[filt_size])
        filt = a[:, None] * a[None, :]
        filt = filt / filt.sum()
        self.register_buffer("filt", filt[None, None].repeat(channels, 1, 1, 1))

    def forward(self, x):
        x = F.pad(x, self.pad_sizes, mode="reflect")
        return F.conv2d(x, self.filt, stride=self.stride, groups=self.channels)


batch_size = 16
channels = 128
height, width = 96, 96


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]

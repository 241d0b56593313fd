import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 32
IN_CH = 64
OUT_CH = 128
LENGTH = 1024
KERNEL = 3
DILATION = 4


class Model(nn.Module):
    """Temporal convolutional network block: two causal dilated convolutions and a skip."""

    def __init__(self, in_ch, out_ch, kernel, dilation):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv1 = nn.Conv1d(in_ch, out_ch, kernel, dilation=dilation)
        self.conv2 = nn.Conv1d(out_ch, out_ch, kernel, dilation=dilation)
        self.downsample = nn.Conv1d(in_ch, out_ch, 1) if in_ch != out_ch else nn.Identity()

    def forward(self, x):
        h = F.relu(self.conv1(F.pad(x, (self.pad, 0))))
        h = F.relu(self.conv2(F.pad(h, (self.pad, 0))))
        return F.relu(h + self.downsample(x))


def get_inputs():
    return [torch.randn(BATCH, IN_CH, LENGTH)]


def get_init_inputs():
    return [IN_CH, OUT_CH, KERNEL, DILATION]

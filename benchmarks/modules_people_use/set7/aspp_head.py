import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 2
IN_CH = 320
OUT_CH = 256
SIZE = 64
RATES = (6, 12, 18)


def conv_bn(in_ch, out_ch, kernel, rate=1):
    pad = 0 if kernel == 1 else rate
    conv = nn.Conv2d(in_ch, out_ch, kernel, padding=pad, dilation=rate, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_ch), nn.ReLU())


class Model(nn.Module):
    """DeepLabV3 atrous spatial pyramid pooling, for inference."""

    def __init__(self, in_ch, out_ch, rates):
        super().__init__()
        self.point = conv_bn(in_ch, out_ch, 1)
        self.atrous = nn.ModuleList([conv_bn(in_ch, out_ch, 3, r) for r in rates])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_bn(in_ch, out_ch, 1))
        self.project = conv_bn((len(rates) + 2) * out_ch, out_ch, 1)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):  # stand-in for trained statistics
                m.running_mean.normal_(0.0, 0.1)
                m.running_var.uniform_(0.2, 0.6)
        self.eval()

    def forward(self, x):
        outs = [self.point(x)]
        for branch in self.atrous:
            outs.append(branch(x))
        pooled = self.pool(x)
        outs.append(F.interpolate(pooled, size=x.shape[-2:], mode="bilinear", align_corners=False))
        return self.project(torch.cat(outs, dim=1))


def get_inputs():
    return [torch.randn(BATCH, IN_CH, SIZE, SIZE)]


def get_init_inputs():
    return [IN_CH, OUT_CH, RATES]

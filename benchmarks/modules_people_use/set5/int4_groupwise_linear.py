import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Weight-only int4 linear: two nibbles per byte, asymmetric scale and zero point for each group of inputs."""

    def __init__(self, in_features, out_features, group_size=128):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.group_size = group_size

        linear = nn.Linear(in_features, out_features)
        w = linear.weight.detach().view(out_features, in_features // group_size, group_size)
        w_min = w.amin(dim=-1, keepdim=True)
        w_max = w.amax(dim=-1, keepdim=True)
        scales = (w_max - w_min).clamp(min=1e-5) / 15.0
        zeros = torch.round(-w_min / scales)
        q = torch.clamp(torch.round(w / scales) + zeros, 0, 15).to(torch.uint8).view(out_features, in_features)

        self.register_buffer("qweight", q[:, 0::2] | (q[:, 1::2] << 4))
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, x):
        low = self.qweight & 0x0F
        high = self.qweight >> 4
        q = torch.stack([low, high], dim=-1)  # [out, in / 2, 2]
        q = q.view(self.out_features, -1, self.group_size).to(x.dtype)
        weight = (q - self.zeros) * self.scales
        return F.linear(x, weight.view(self.out_features, self.in_features), self.bias)


batch_size = 2
seq_len = 256
in_features = 2048
out_features = 2048
group_size = 128


def get_inputs():
    return [torch.randn(batch_size, seq_len, in_features)]


def get_init_inputs():
    return [in_features, out_features, group_size]

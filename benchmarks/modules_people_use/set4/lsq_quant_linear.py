import torch
import torch.nn as nn
import torch.nn.functional as F


def round_pass(x):
    y = x.round()
    return (y - x).detach() + x


class LsqQuan(nn.Module):
    def __init__(self, bit, per_channel=0, init=0.05):
        super().__init__()
        self.thd_neg = -2 ** (bit - 1)
        self.thd_pos = 2 ** (bit - 1) - 1
        self.s = nn.Parameter(torch.full((per_channel, 1) if per_channel else (1,), init))

    def init_from(self, w):
        self.s.data.copy_(w.detach().abs().mean(dim=1, keepdim=True) * 2 / (self.thd_pos ** 0.5))

    def forward(self, x):
        x = torch.clamp(x / self.s, self.thd_neg, self.thd_pos)
        return round_pass(x) * self.s


class Model(nn.Module):
    """Linear layer with learned-step fake quantisation: 4-bit weights per output channel, 8-bit activations."""

    def __init__(self, in_features, out_features, w_bit=4, a_bit=8):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.quan_w_fn = LsqQuan(w_bit, per_channel=out_features)
        self.quan_a_fn = LsqQuan(a_bit, init=0.03)
        self.quan_w_fn.init_from(self.linear.weight)

    def forward(self, x):
        quantized_weight = self.quan_w_fn(self.linear.weight)
        quantized_act = self.quan_a_fn(x)
        return F.linear(quantized_act, quantized_weight, self.linear.bias)


tokens = 4096
in_features = 1024
out_features = 2816


def get_inputs():
    return [torch.randn(tokens, in_features)]


def get_init_inputs():
    return [in_features, out_features]

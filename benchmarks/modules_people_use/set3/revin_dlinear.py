import torch
import torch.nn as nn
import torch.nn.functional as F


class SeriesDecomp(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.pad = (kernel_size - 1) // 2
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=1, padding=0)

    def forward(self, x):
        # x: [batch, length, channel], ends are repeated
        front = x[:, 0:1, :].repeat(1, self.pad, 1)
        end = x[:, -1:, :].repeat(1, self.pad, 1)
        padded = torch.cat([front, x, end], dim=1)
        trend = self.avg(padded.permute(0, 2, 1)).permute(0, 2, 1)
        return x - trend, trend


class Model(nn.Module):
    """DLinear forecaster inside reversible instance normalisation."""

    def __init__(self, seq_len, pred_len, enc_in, moving_avg=25):
        super().__init__()
        self.decomp = SeriesDecomp(moving_avg)
        self.linear_seasonal = nn.Linear(seq_len, pred_len)
        self.linear_trend = nn.Linear(seq_len, pred_len)
        self.affine_weight = nn.Parameter(1.0 + 0.1 * torch.randn(enc_in))
        self.affine_bias = nn.Parameter(0.1 * torch.randn(enc_in))
        self.eps = 1e-5

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        stdev = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + self.eps)
        x = (x - mean) / stdev
        x = x * self.affine_weight + self.affine_bias

        seasonal, trend = self.decomp(x)
        seasonal = self.linear_seasonal(seasonal.transpose(1, 2))
        trend = self.linear_trend(trend.transpose(1, 2))
        y = (seasonal + trend).transpose(1, 2)

        y = (y - self.affine_bias) / (self.affine_weight + self.eps * self.eps)
        return y * stdev + mean


batch_size = 64
seq_len = 336
pred_len = 96
n_vars = 21


def get_inputs():
    return [torch.randn(batch_size, seq_len, n_vars)]


def get_init_inputs():
    return [seq_len, pred_len, n_vars, 25]

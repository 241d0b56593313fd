import torch
import torch.nn as nn


class MovingAverage(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.pad = (kernel_size - 1) // 2
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=1, padding=0)

    def forward(self, x):
        front = x[:, 0:1, :].repeat(1, self.pad, 1)
        end = x[:, -1:, :].repeat(1, self.pad, 1)
        x = torch.cat([front, x, end], dim=1)
        return self.avg(x.permute(0, 2, 1)).permute(0, 2, 1)


class Model(nn.Module):
    """DLinear forecaster with reversible instance normalisation: trend and seasonal parts, each mapped linearly."""

    def __init__(self, seq_len, pred_len, channels, kernel_size=25):
        super().__init__()
        self.decomp = MovingAverage(kernel_size)
        self.linear_seasonal = nn.Linear(seq_len, pred_len)
        self.linear_trend = nn.Linear(seq_len, pred_len)
        self.affine_weight = nn.Parameter(1.0 + 0.1 * torch.randn(channels))
        self.affine_bias = nn.Parameter(0.1 * torch.randn(channels))

    def forward(self, x):
        # x: (batch, seq_len, channels)
        mu = x.mean(dim=1, keepdim=True)
        sigma = torch.sqrt(x.var(dim=1, keepdim=True, unbiased=False) + 1e-5)
        x = (x - mu) / sigma * self.affine_weight + self.affine_bias

        trend = self.decomp(x)
        seasonal = x - trend
        out = self.linear_seasonal(seasonal.permute(0, 2, 1)) + self.linear_trend(trend.permute(0, 2, 1))
        out = out.permute(0, 2, 1)

        out = (out - self.affine_bias) / (self.affine_weight + 1e-10)
        return out * sigma + mu


seq_len = 336
pred_len = 96
channels = 321


def get_inputs():
    level = 5.0 * torch.randn(32, 1, channels)
    return [level + torch.randn(32, seq_len, channels).cumsum(dim=1) * 0.2]


def get_init_inputs():
    return [seq_len, pred_len, channels]

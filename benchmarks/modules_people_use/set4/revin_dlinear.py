import torch
import torch.nn as nn


class moving_avg(nn.Module):
    """
    Moving average block to highlight the trend of time series
    """

    def __init__(self, kernel_size, stride):
        super(moving_avg, self).__init__()
        self.kernel_size = kernel_size
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=0)

    def forward(self, x):
        # padding on the both ends of time series
        front = x[:, 0:1, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        end = x[:, -1:, :].repeat(1, (self.kernel_size - 1) // 2, 1)
        x = torch.cat([front, x, end], dim=1)
        x = self.avg(x.permute(0, 2, 1))
        x = x.permute(0, 2, 1)
        return x


class series_decomp(nn.Module):
    def __init__(self, kernel_size):
        super(series_decomp, self).__init__()
        self.moving_avg = moving_avg(kernel_size, stride=1)

    def forward(self, x):
        moving_mean = self.moving_avg(x)
        res = x - moving_mean
        return res, moving_mean


class Model(nn.Module):
    """DLinear forecaster wrapped in reversible instance normalisation."""

    def __init__(self, seq_len, pred_len, enc_in, kernel_size=25, eps=1e-5):
        super(Model, self).__init__()
        self.decompsition = series_decomp(kernel_size)
        self.Linear_Seasonal = nn.Linear(seq_len, pred_len)
        self.Linear_Trend = nn.Linear(seq_len, pred_len)
        self.eps = eps
        self.affine_weight = nn.Parameter(torch.ones(enc_in))
        self.affine_bias = nn.Parameter(torch.zeros(enc_in))

    def forward(self, x):
        # x: [Batch, Input length, Channel]
        mean = torch.mean(x, dim=1, keepdim=True).detach()
        stdev = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + self.eps).detach()
        x = (x - mean) / stdev
        x = x * self.affine_weight + self.affine_bias

        seasonal_init, trend_init = self.decompsition(x)
        seasonal_init, trend_init = seasonal_init.permute(0, 2, 1), trend_init.permute(0, 2, 1)
        x = self.Linear_Seasonal(seasonal_init) + self.Linear_Trend(trend_init)
        x = x.permute(0, 2, 1)

        x = (x - self.affine_bias) / (self.affine_weight + self.eps * self.eps)
        x = x * stdev + mean
        return x


batch_size = 64
seq_len = 336
pred_len = 96
enc_in = 321  # electricity


def get_inputs():
    return [torch.randn(batch_size, seq_len, enc_in)]


def get_init_inputs():
    return [seq_len, pred_len, enc_in]

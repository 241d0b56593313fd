import torch
import torch.nn as nn


PATHS = 4096
DAYS = 2520
DRIFT = 0.0003
VOLATILITY = 0.012


class Model(nn.Module):
    """Log drawdown from the running high-water mark (at least the starting capital) of simulated paths."""

    def __init__(self):
        super().__init__()

    def forward(self, log_returns):
        log_equity = log_returns.cumsum(dim=1)
        high_water = torch.cummax(log_equity, dim=1).values.clamp(min=0.0)
        return log_equity - high_water


def get_inputs():
    return [torch.randn(PATHS, DAYS) * VOLATILITY + DRIFT]


def get_init_inputs():
    return []

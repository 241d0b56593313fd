import torch
import torch.nn as nn


BATCH = 128
DAYS = 252
ASSETS = 500
COST = 1e-3


class Model(nn.Module):
    """Negative annualised Sharpe ratio of a long-only portfolio net of trading costs."""

    def __init__(self, cost, periods=252):
        super().__init__()
        self.cost = cost
        self.annualise = periods ** 0.5

    def forward(self, scores, returns):
        weights = torch.softmax(scores, dim=-1)
        gross = (weights * returns).sum(dim=-1)
        turnover = (weights[:, 1:] - weights[:, :-1]).abs().sum(dim=-1)
        net = gross[:, 1:] - self.cost * turnover
        sharpe = self.annualise * net.mean(dim=1) / (net.std(dim=1) + 1e-6)
        return -sharpe.mean(), net


def get_inputs():
    scores = torch.randn(BATCH, DAYS, ASSETS)
    returns = 5e-4 + 0.02 * torch.randn(BATCH, DAYS, ASSETS)
    return [scores, returns]


def get_init_inputs():
    return [COST]

import torch
import torch.nn as nn


class Model(nn.Module):
    """Quantile (pinball) loss of a probabilistic forecast, one value per series, missing targets masked out."""

    def __init__(self, quantiles):
        super().__init__()
        self.register_buffer("q", torch.tensor(quantiles, dtype=torch.float32))

    def forward(self, y_pred, y_true, observed):
        # y_pred (N, T, Q); y_true, observed (N, T)
        err = y_true.unsqueeze(-1) - y_pred
        loss = torch.maximum(self.q * err, (self.q - 1) * err)
        per_step = 2 * loss.mean(dim=-1)
        total_weight = observed.sum(dim=1).clamp_min(1.0)
        return (per_step * observed).sum(dim=1) / total_weight


n_series = 4096
horizon = 96
quantile_levels = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]


def get_inputs():
    level = 3.0 * torch.randn(n_series, 1)
    y_true = level + torch.randn(n_series, horizon)
    y_pred = torch.randn(n_series, horizon, len(quantile_levels))
    observed = (torch.rand(n_series, horizon) > 0.2).float()
    return [y_pred, y_true, observed]


def get_init_inputs():
    return [quantile_levels]

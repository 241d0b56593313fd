import torch
import torch.nn as nn


class Block(nn.Module):
    """Four layers, one vector of coefficients, fixed basis for backcast and forecast."""

    def __init__(self, backcast_size, units, backcast_basis, forecast_basis):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(backcast_size, units),
            nn.ReLU(),
            nn.Linear(units, units),
            nn.ReLU(),
            nn.Linear(units, units),
            nn.ReLU(),
            nn.Linear(units, units),
            nn.ReLU(),
        )
        self.split = [backcast_basis.size(0), forecast_basis.size(0)]
        self.theta = nn.Linear(units, sum(self.split), bias=False)
        self.register_buffer("backcast_basis", backcast_basis)
        self.register_buffer("forecast_basis", forecast_basis)

    def forward(self, x):
        theta_b, theta_f = torch.split(self.theta(self.layers(x)), self.split, dim=-1)
        backcast = torch.einsum("bp,pt->bt", theta_b, self.backcast_basis)
        forecast = torch.einsum("bp,pt->bt", theta_f, self.forecast_basis)
        return backcast, forecast


def trend_basis(degree, size):
    t = torch.arange(size, dtype=torch.float) / size
    return torch.stack([t**i for i in range(degree + 1)])


def seasonality_basis(harmonics, size, horizon):
    k = torch.arange(harmonics, dtype=torch.float).unsqueeze(1)
    angle = 2 * torch.pi * k * torch.arange(size, dtype=torch.float).unsqueeze(0) / horizon
    return torch.cat([torch.cos(angle), torch.sin(angle)], dim=0)


class Model(nn.Module):
    """Interpretable N-BEATS: a trend block and a seasonality block with doubly residual stacking."""

    def __init__(self, backcast_size, horizon, units=256, degree=2, harmonics=12):
        super().__init__()
        self.trend = Block(backcast_size, units, trend_basis(degree, backcast_size), trend_basis(degree, horizon))
        self.seasonality = Block(
            backcast_size,
            units,
            seasonality_basis(harmonics, backcast_size, horizon),
            seasonality_basis(harmonics, horizon, horizon),
        )

    def forward(self, x, x_mask):
        # scale by the largest observed level of the window
        level = (x.abs() * x_mask).amax(dim=1, keepdim=True).clamp(min=1e-3)
        residual = x * x_mask / level
        backcast, trend = self.trend(residual)
        residual = (residual - backcast) * x_mask
        _, seasonality = self.seasonality(residual)
        return (trend + seasonality) * level


batch_size = 1024
backcast_size = 168
horizon = 24


def get_inputs():
    return [
        torch.randn(batch_size, backcast_size) * 10.0 + 50.0,
        torch.randint(0, 2, (batch_size, backcast_size)).float(),
    ]


def get_init_inputs():
    return [backcast_size, horizon]

import math

import torch
import torch.nn as nn

PATHS = 32_768
STEPS = 252
SPOT = 100.0
STRIKE = 102.0
RATE = 0.03
VOLATILITY = 0.25
MATURITY = 1.0


class Model(nn.Module):
    """Monte Carlo price and standard error of an arithmetic Asian call with antithetic paths."""

    def __init__(
        self, spot: float, strike: float, rate: float, vol: float, maturity: float, steps: int
    ):
        super().__init__()
        dt = maturity / steps
        self.spot = spot
        self.strike = strike
        self.drift = (rate - 0.5 * vol * vol) * dt
        self.diffusion = vol * math.sqrt(dt)
        self.discount = math.exp(-rate * maturity)

    def forward(self, normals: torch.Tensor):
        increments = self.drift + self.diffusion * torch.stack([normals, -normals])
        prices = self.spot * increments.cumsum(dim=-1).exp()
        payoff = self.discount * torch.relu(prices.mean(dim=-1) - self.strike)

        payoff = payoff.mean(dim=0)  # average each antithetic pair
        std_error = payoff.std() / math.sqrt(payoff.numel())
        return payoff.mean(), std_error


def get_inputs():
    return [torch.randn(PATHS, STEPS)]


def get_init_inputs():
    return [SPOT, STRIKE, RATE, VOLATILITY, MATURITY, STEPS]

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """Black-Scholes price and delta of European calls on a dividend paying stock."""

    def __init__(self, rate=0.03, dividend=0.01):
        super().__init__()
        self.r = rate
        self.q = dividend

    @staticmethod
    def norm_cdf(x):
        return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))

    def forward(self, spot, strike, tau, vol):
        tau = tau.clamp(min=1e-4)
        vol_sqrt_t = vol * tau.sqrt()
        d1 = (torch.log(spot / strike) + (self.r - self.q + 0.5 * vol ** 2) * tau) / vol_sqrt_t
        d2 = d1 - vol_sqrt_t

        df_r = torch.exp(-self.r * tau)
        df_q = torch.exp(-self.q * tau)
        price = spot * df_q * self.norm_cdf(d1) - strike * df_r * self.norm_cdf(d2)
        delta = df_q * self.norm_cdf(d1)
        return torch.stack([price, delta], dim=-1)


n_options = 1 << 20


def get_inputs():
    spot = torch.rand(n_options) * 60.0 + 70.0
    strike = torch.rand(n_options) * 60.0 + 70.0
    tau = torch.rand(n_options) * 2.0 + 0.05
    vol = torch.rand(n_options) * 0.4 + 0.1
    return [spot, strike, tau, vol]


def get_init_inputs():
    return [0.03, 0.01]

import torch
import torch.nn as nn


BONDS = 65536
PERIODS = 120
PERIODS_PER_YEAR = 4


class Model(nn.Module):
    """Price, duration and convexity of a book of bonds under continuously compounded yields."""

    def __init__(self, periods, periods_per_year):
        super().__init__()
        times = torch.arange(1, periods + 1, dtype=torch.float32) / periods_per_year
        self.register_buffer("times", times)

    def forward(self, cash_flows, yields):
        discount = torch.exp(-yields.unsqueeze(1) * self.times)
        present = cash_flows * discount
        price = present.sum(dim=1)
        weighted = present * self.times
        duration = weighted.sum(dim=1) / price
        convexity = (weighted * self.times).sum(dim=1) / price
        return price, duration, convexity


def get_inputs():
    maturity = torch.randint(4, PERIODS + 1, (BONDS, 1))
    period = torch.arange(1, PERIODS + 1)
    coupon = torch.rand(BONDS, 1) * 1.5 + 0.1
    cash_flows = coupon * (period <= maturity) + 100.0 * (period == maturity)
    yields = torch.rand(BONDS) * 0.07 + 0.005
    return [cash_flows, yields]


def get_init_inputs():
    return [PERIODS, PERIODS_PER_YEAR]

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16384
FEATURES = 32
HIDDEN = 256
NUM_BINS = 8
TAIL = 3.0

MIN_BIN = 1e-3
MIN_DERIV = 1e-3


def knots(unnormalized, tail):
    n = unnormalized.shape[-1]
    sizes = MIN_BIN + (1 - MIN_BIN * n) * F.softmax(unnormalized, dim=-1)
    edges = F.pad(torch.cumsum(sizes, dim=-1), (1, 0))
    return 2 * tail * edges - tail


class Model(nn.Module):
    """Log density of one rational-quadratic spline coupling layer (neural spline flow)."""

    def __init__(self, features, hidden, num_bins, tail_bound):
        super().__init__()
        self.half = features // 2
        self.num_bins = num_bins
        self.tail_bound = tail_bound
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, (features - self.half) * (3 * num_bins - 1)),
        )

    def forward(self, inputs):
        x_id, x = inputs[:, :self.half], inputs[:, self.half:]
        params = self.net(x_id).view(*x.shape, 3 * self.num_bins - 1)
        w, h, d = params.split([self.num_bins, self.num_bins, self.num_bins - 1], dim=-1)
        cumw = knots(w, self.tail_bound)
        cumh = knots(h, self.tail_bound)
        d = F.pad(MIN_DERIV + F.softplus(d), (1, 1), value=1.0)

        inside = (x >= -self.tail_bound) & (x <= self.tail_bound)
        xc = x.clamp(-self.tail_bound, self.tail_bound)
        idx = (xc.unsqueeze(-1) >= cumw[..., 1:-1]).sum(dim=-1, keepdim=True)

        x0 = cumw.gather(-1, idx).squeeze(-1)
        bin_w = cumw.gather(-1, idx + 1).squeeze(-1) - x0
        y0 = cumh.gather(-1, idx).squeeze(-1)
        bin_h = cumh.gather(-1, idx + 1).squeeze(-1) - y0
        d0 = d.gather(-1, idx).squeeze(-1)
        d1 = d.gather(-1, idx + 1).squeeze(-1)

        delta = bin_h / bin_w
        theta = (xc - x0) / bin_w
        tt = theta * (1 - theta)
        denom = delta + (d0 + d1 - 2 * delta) * tt
        y = y0 + bin_h * (delta * theta.pow(2) + d0 * tt) / denom
        deriv = delta.pow(2) * (d1 * theta.pow(2) + 2 * delta * tt + d0 * (1 - theta).pow(2))
        logdet = torch.log(deriv) - 2 * torch.log(denom)

        y = torch.where(inside, y, x)
        logdet = torch.where(inside, logdet, torch.zeros_like(logdet)).sum(dim=-1)
        z = torch.cat([x_id, y], dim=-1)
        return -0.5 * (z.pow(2) + math.log(2 * math.pi)).sum(dim=-1) + logdet


def get_inputs():
    return [1.5 * torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN, NUM_BINS, TAIL]

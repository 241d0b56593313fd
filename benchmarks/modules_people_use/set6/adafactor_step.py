import math

import torch
import torch.nn as nn

ROWS = 4096
COLS = 4096
STEP = 200
LR = 1e-3


class Model(nn.Module):
    """Adafactor update of one weight matrix with factored second moments and RMS clipping."""

    def __init__(
        self,
        step: int,
        lr: float,
        decay_rate: float = -0.8,
        eps: float = 1e-30,
        clip_threshold: float = 1.0,
    ):
        super().__init__()
        self.beta2 = 1.0 - step**decay_rate
        self.lr = lr
        self.eps = eps
        self.clip_threshold = clip_threshold

    def forward(self, param, grad, row_avg, col_avg):
        grad_sq = grad.square() + self.eps
        row_avg = row_avg.lerp(grad_sq.mean(dim=1), 1.0 - self.beta2)
        col_avg = col_avg.lerp(grad_sq.mean(dim=0), 1.0 - self.beta2)

        second_moment = torch.outer(row_avg / row_avg.mean(), col_avg)
        update = grad * second_moment.rsqrt()

        # RMS(u) > d  <=>  ||u|| > d * sqrt(n)
        max_norm = self.clip_threshold * math.sqrt(update.numel())
        update = update / update.norm().clamp(min=max_norm)
        param = param.sub(update, alpha=self.lr * max_norm)
        return param, row_avg, col_avg


def get_inputs():
    return [
        torch.randn(ROWS, COLS) * 0.02,
        torch.randn(ROWS, COLS) * 0.01,
        torch.rand(ROWS) * 1e-4 + 5e-5,
        torch.rand(COLS) * 1e-4 + 5e-5,
    ]


def get_init_inputs():
    return [STEP, LR]

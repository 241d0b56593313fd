import torch
import torch.nn as nn


ROWS = 4096
COLS = 4096
LR = 3e-4
BETAS = (0.9, 0.95)
EPS = 1e-8
WEIGHT_DECAY = 0.1


class Model(nn.Module):
    """One functional AdamW step for a weight matrix: new parameter and both moments."""

    def __init__(self, lr, betas, eps, weight_decay):
        super().__init__()
        self.lr = lr
        self.beta1, self.beta2 = betas
        self.eps = eps
        self.weight_decay = weight_decay

    def forward(self, param, grad, exp_avg, exp_avg_sq, step):
        param = param * (1.0 - self.lr * self.weight_decay)
        exp_avg = torch.lerp(exp_avg, grad, 1.0 - self.beta1)
        exp_avg_sq = self.beta2 * exp_avg_sq + (1.0 - self.beta2) * grad * grad
        bias1 = 1.0 - self.beta1 ** step
        bias2 = 1.0 - self.beta2 ** step
        denom = (exp_avg_sq / bias2).sqrt() + self.eps
        param = param - self.lr * (exp_avg / bias1) / denom
        return param, exp_avg, exp_avg_sq


def get_inputs():
    param = torch.randn(ROWS, COLS) * 0.02
    grad = torch.randn(ROWS, COLS) * 0.01
    exp_avg = torch.randn(ROWS, COLS) * 0.003
    exp_avg_sq = torch.rand(ROWS, COLS) * 1e-4
    step = torch.randint(10, 1000, (1,)).float()
    return [param, grad, exp_avg, exp_avg_sq, step]


def get_init_inputs():
    return [LR, BETAS, EPS, WEIGHT_DECAY]

import torch
import torch.nn as nn

ROWS, COLS = 4096, 1024
LR, BETA1, BETA2, EPS, WD = 2e-3, 0.9, 0.999, 1e-6, 0.01
STEP = 100


class Model(nn.Module):
    """One LAMB update of a weight matrix; gives back parameter and both moments."""

    def __init__(self, lr, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        self.lr, self.eps, self.weight_decay = lr, eps, weight_decay
        self.beta1, self.beta2 = beta1, beta2
        self.bc1 = 1 - beta1 ** step
        self.bc2 = 1 - beta2 ** step

    def forward(self, param, grad, exp_avg, exp_avg_sq):
        grad = grad / grad.norm().clamp(min=1.0)
        exp_avg = exp_avg.mul(self.beta1).add(grad, alpha=1 - self.beta1)
        exp_avg_sq = exp_avg_sq.mul(self.beta2).addcmul(grad, grad, value=1 - self.beta2)
        update = (exp_avg / self.bc1).div((exp_avg_sq / self.bc2).sqrt().add(self.eps))
        update = update.add(param, alpha=self.weight_decay)
        w_norm, g_norm = param.norm(2.0), update.norm(2.0)
        trust_ratio = torch.where((w_norm > 0) & (g_norm > 0), w_norm / g_norm, torch.ones_like(w_norm))
        param = param - self.lr * trust_ratio.clamp(max=10.0) * update
        return param, exp_avg, exp_avg_sq


def get_inputs():
    return [
        0.02 * torch.randn(ROWS, COLS),
        1e-3 * torch.randn(ROWS, COLS),
        1e-4 * torch.randn(ROWS, COLS),
        1e-7 * torch.rand(ROWS, COLS),
    ]


def get_init_inputs():
    return [LR, BETA1, BETA2, EPS, WD, STEP]

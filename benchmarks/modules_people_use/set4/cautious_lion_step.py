import torch
import torch.nn as nn


class Model(nn.Module):
    """One step of the Lion optimiser with cautious masking."""

    def __init__(self, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.1):
        super().__init__()
        self.lr = lr
        self.beta1, self.beta2 = beta1, beta2
        self.wd = weight_decay

    def forward(self, p, grad, exp_avg):
        # stepweight decay
        p = p * (1.0 - self.lr * self.wd)

        # weight update
        update = torch.sign(exp_avg * self.beta1 + grad * (1.0 - self.beta1))
        mask = (update * grad > 0).to(grad.dtype)
        mask = mask / mask.mean().clamp(min=1e-3)
        p = p - self.lr * update * mask

        # decay the momentum running average coefficient
        exp_avg = torch.lerp(exp_avg, grad, 1.0 - self.beta2)
        return p, exp_avg


rows = 4096
cols = 2048


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return [1e-2]

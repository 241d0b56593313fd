import torch
import torch.nn as nn


class Model(nn.Module):
    """Muon direction of a matrix parameter: Nesterov momentum, Newton-Schulz, RMS matched to AdamW, weight decay."""

    def __init__(self, momentum=0.95, weight_decay=0.1, ns_steps=5):
        super().__init__()
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.ns_steps = ns_steps

    def zeropower_via_newtonschulz5(self, G):
        a, b, c = (3.4445, -4.7750, 2.0315)
        X = G
        if G.size(-2) > G.size(-1):
            X = X.mT
        X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(self.ns_steps):
            A = X @ X.mT
            B = b * A + c * A @ A
            X = a * X + B @ X
        if G.size(-2) > G.size(-1):
            X = X.mT
        return X

    def forward(self, param, grad, momentum_buffer):
        buf = torch.lerp(momentum_buffer, grad, 1 - self.momentum)
        update = torch.lerp(grad, buf, self.momentum)
        update = self.zeropower_via_newtonschulz5(update)
        update = update * (0.2 * max(grad.size(-2), grad.size(-1)) ** 0.5)
        return update + self.weight_decay * param


rows = 1024
cols = 512


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols), torch.randn(rows, cols) * 0.3]


def get_init_inputs():
    return [0.95, 0.1]

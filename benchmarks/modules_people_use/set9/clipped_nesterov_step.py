import torch
import torch.nn as nn


ROWS = 32000
COLUMNS = 512
LEARNING_RATE = 0.05
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
MAX_NORM = 10.0


class Model(nn.Module):
    """SGD step with gradient-norm clipping, weight decay and Nesterov momentum for an embedding table."""

    def __init__(self, learning_rate, momentum, weight_decay, max_norm):
        super().__init__()
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.max_norm = max_norm

    def forward(self, parameter, gradient, velocity):
        norm = torch.linalg.vector_norm(gradient)
        clip = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
        gradient = gradient * clip
        gradient = gradient.add(parameter, alpha=self.weight_decay)
        velocity = self.momentum * velocity + gradient
        update = gradient.add(velocity, alpha=self.momentum)
        return parameter - self.learning_rate * update, velocity


def get_inputs():
    parameter = torch.randn(ROWS, COLUMNS) * 0.02
    gradient = torch.randn(ROWS, COLUMNS) * 0.01
    velocity = torch.randn(ROWS, COLUMNS) * 0.01
    return [parameter, gradient, velocity]


def get_init_inputs():
    return [LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, MAX_NORM]

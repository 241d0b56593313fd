import math
import torch
import torch.nn as nn
import torch.nn.functional as F

LOG2PI = math.log(2 * math.pi)


class Model(nn.Module):
    """Mixture density head with diagonal Gaussians; negative log likelihood of each sample."""

    def __init__(self, in_dim, out_dim, n_components, min_sigma=1e-3):
        super().__init__()
        self.K = n_components
        self.D = out_dim
        self.min_sigma = min_sigma
        self.trunk = nn.Linear(in_dim, in_dim)
        self.pi = nn.Linear(in_dim, n_components)
        self.mu = nn.Linear(in_dim, n_components * out_dim)
        self.sigma = nn.Linear(in_dim, n_components * out_dim)

    def forward(self, x, y):
        h = torch.tanh(self.trunk(x))
        log_pi = F.log_softmax(self.pi(h), dim=1)
        mu = self.mu(h).view(-1, self.K, self.D)
        sigma = F.softplus(self.sigma(h)).view(-1, self.K, self.D) + self.min_sigma

        z = (y.unsqueeze(1) - mu) / sigma
        log_prob = -0.5 * z.pow(2) - torch.log(sigma) - 0.5 * LOG2PI
        log_prob = log_prob.sum(dim=2)
        return -torch.logsumexp(log_pi + log_prob, dim=1)


batch_size = 4096
hidden_dim = 256
action_dim = 7
num_mixtures = 5


def get_inputs():
    return [torch.randn(batch_size, hidden_dim), torch.randn(batch_size, action_dim)]


def get_init_inputs():
    return [hidden_dim, action_dim, num_mixtures]

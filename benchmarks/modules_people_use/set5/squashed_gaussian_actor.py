import torch
import torch.nn as nn
import torch.nn.functional as F

LOG_STD_MIN = -5.0
LOG_STD_MAX = 2.0


class Model(nn.Module):
    """SAC actor: reparameterised tanh-squashed Gaussian, returns the log probability of the sampled action."""

    def __init__(self, obs_dim, act_dim, hidden_dim=256):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(obs_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden_dim, 2 * act_dim)

    def forward(self, obs, noise):
        mean, log_std = self.head(self.trunk(obs)).chunk(2, dim=-1)
        log_std = torch.tanh(log_std)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        pre_tanh = mean + log_std.exp() * noise

        log_prob = -0.5 * noise.pow(2) - log_std - 0.9189385332046727
        # log(1 - tanh(u)^2), the numerically stable form
        log_det = 2.0 * (0.6931471805599453 - pre_tanh - F.softplus(-2.0 * pre_tanh))
        return (log_prob - log_det).sum(dim=-1, keepdim=True)


batch_size = 1024
obs_dim = 376
act_dim = 17


def get_inputs():
    return [torch.randn(batch_size, obs_dim), torch.randn(batch_size, act_dim)]


def get_init_inputs():
    return [obs_dim, act_dim]

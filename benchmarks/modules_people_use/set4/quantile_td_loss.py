import torch
import torch.nn as nn


class Model(nn.Module):
    """QR-DQN quantile Huber loss with the greedy target and prioritised replay weights."""

    def __init__(self, num_quantiles, gamma=0.99, n_step=3, kappa=1.0):
        super().__init__()
        taus = (torch.arange(num_quantiles, dtype=torch.float32) + 0.5) / num_quantiles
        self.register_buffer("tau_hat", taus.view(1, num_quantiles, 1))
        self.gamma_n = gamma ** n_step
        self.kappa = kappa

    def forward(self, quantiles, next_quantiles, actions, rewards, dones, weights):
        batch, _, n = quantiles.shape

        # quantiles of the action that was taken: (B, N, 1)
        idx = actions.view(batch, 1, 1).expand(batch, 1, n)
        current = quantiles.gather(1, idx).transpose(1, 2)

        # greedy next action by the mean of its quantiles: (B, 1, N)
        next_actions = next_quantiles.mean(dim=2).argmax(dim=1)
        next_idx = next_actions.view(batch, 1, 1).expand(batch, 1, n)
        next_q = next_quantiles.gather(1, next_idx)
        target = rewards[:, None, None] + (1.0 - dones.float())[:, None, None] * self.gamma_n * next_q

        td_error = target - current  # (B, N, N')
        abs_td = td_error.abs()
        huber = torch.where(
            abs_td <= self.kappa,
            0.5 * td_error.pow(2),
            self.kappa * (abs_td - 0.5 * self.kappa),
        )
        rho = torch.abs(self.tau_hat - (td_error.detach() < 0).float()) * huber / self.kappa
        per_sample = rho.sum(dim=1).mean(dim=1)
        loss = (per_sample * weights).mean()
        priorities = abs_td.mean(dim=(1, 2))
        return loss, priorities


batch_size = 512
num_actions = 18
num_quantiles = 200


def get_inputs():
    return [
        torch.randn(batch_size, num_actions, num_quantiles),
        torch.randn(batch_size, num_actions, num_quantiles),
        torch.randint(0, num_actions, (batch_size,)),
        torch.randn(batch_size),
        torch.randint(0, 2, (batch_size,)),
        torch.rand(batch_size),
    ]


def get_init_inputs():
    return [num_quantiles]

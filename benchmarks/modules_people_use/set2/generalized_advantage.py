import torch
import torch.nn as nn


class Model(nn.Module):
    """Generalised advantage estimation over a rollout, standardised per environment."""

    def __init__(self, gamma=0.99, lam=0.95):
        super().__init__()
        self.gamma = gamma
        self.lam = lam

    def forward(self, rewards, values, dones, last_value):
        # rewards, values, dones: (steps, envs); last_value: (envs,)
        steps = rewards.shape[0]
        advantages = torch.zeros_like(rewards)
        running = torch.zeros_like(last_value)
        for t in reversed(range(steps)):
            next_value = last_value if t == steps - 1 else values[t + 1]
            not_done = 1.0 - dones[t]
            delta = rewards[t] + self.gamma * next_value * not_done - values[t]
            running = delta + self.gamma * self.lam * not_done * running
            advantages[t] = running
        mean = advantages.mean(dim=0, keepdim=True)
        std = advantages.std(dim=0, keepdim=True)
        return (advantages - mean) / (std + 1e-8)


num_steps = 128
num_envs = 4096


def get_inputs():
    return [
        torch.randn(num_steps, num_envs),
        torch.randn(num_steps, num_envs),
        (torch.rand(num_steps, num_envs) < 0.02).float(),
        torch.randn(num_envs),
    ]


def get_init_inputs():
    return [0.99, 0.95]

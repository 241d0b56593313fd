import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 262144
ACTIONS = 18
GAMMA = 0.99
N_STEP = 3


class Model(nn.Module):
    """Double DQN n-step loss with prioritised replay weights; also gives the new priorities."""

    def __init__(self, gamma, n_step):
        super().__init__()
        self.discount = gamma ** n_step

    def forward(self, q, next_q, next_q_target, action, reward, done, weight):
        q_taken = q.gather(1, action.unsqueeze(1)).squeeze(1)
        best = next_q.argmax(dim=1, keepdim=True)
        bootstrap = next_q_target.gather(1, best).squeeze(1)
        target = reward + self.discount * (1.0 - done.float()) * bootstrap
        loss = F.smooth_l1_loss(q_taken, target, reduction="none")
        priority = (target - q_taken).abs() + 1e-6
        return (weight * loss).mean(), priority


def get_inputs():
    q = torch.randn(BATCH, ACTIONS)
    next_q = torch.randn(BATCH, ACTIONS)
    next_q_target = next_q + 0.3 * torch.randn(BATCH, ACTIONS)
    action = torch.randint(0, ACTIONS, (BATCH,))
    reward = torch.randn(BATCH).clamp(-1, 1)
    done = torch.rand(BATCH) < 0.02
    weight = torch.rand(BATCH) * 0.9 + 0.1
    return [q, next_q, next_q_target, action, reward, done, weight]


def get_init_inputs():
    return [GAMMA, N_STEP]

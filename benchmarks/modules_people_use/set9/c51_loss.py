import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 8192
ACTIONS = 18
ATOMS = 51
V_MIN = -10.0
V_MAX = 10.0
DISCOUNT = 0.99


class Model(nn.Module):
    """Categorical DQN loss: target distribution projected on the fixed support, loss per transition."""

    def __init__(self, atoms, v_min, v_max, discount):
        super().__init__()
        self.v_min = v_min
        self.v_max = v_max
        self.discount = discount
        self.step = (v_max - v_min) / (atoms - 1)
        self.register_buffer("support", torch.linspace(v_min, v_max, atoms))

    def forward(self, logits, actions, rewards, done, next_logits):
        batch = torch.arange(actions.shape[0], device=actions.device)
        next_probs = next_logits.softmax(dim=-1)
        best = (next_probs * self.support).sum(dim=-1).argmax(dim=-1)
        next_dist = next_probs[batch, best]

        discount = self.discount * (~done).float()
        target = rewards[:, None] + discount[:, None] * self.support
        target = target.clamp(self.v_min, self.v_max)
        distance = (target[:, None, :] - self.support[None, :, None]).abs() / self.step
        overlap = (1.0 - distance).clamp(min=0.0)
        projected = torch.bmm(overlap, next_dist.unsqueeze(-1)).squeeze(-1)

        log_probs = F.log_softmax(logits[batch, actions], dim=-1)
        return -(projected * log_probs).sum(dim=-1)


def get_inputs():
    logits = torch.randn(BATCH, ACTIONS, ATOMS)
    actions = torch.randint(0, ACTIONS, (BATCH,))
    rewards = torch.randn(BATCH)
    done = torch.rand(BATCH) < 0.05
    next_logits = torch.randn(BATCH, ACTIONS, ATOMS)
    return [logits, actions, rewards, done, next_logits]


def get_init_inputs():
    return [ATOMS, V_MIN, V_MAX, DISCOUNT]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """PPO policy loss per episode: clipped ratio, normalised advantages, entropy bonus, padding mask."""

    def __init__(self, clip_eps: float = 0.2, ent_coef: float = 0.01):
        super().__init__()
        self.clip_eps = clip_eps
        self.ent_coef = ent_coef

    def forward(self, logits, old_logits, actions, advantages, ep_len):
        T = logits.size(1)
        mask = (torch.arange(T, device=logits.device) < ep_len.unsqueeze(-1)).float()
        n = mask.sum()

        # normalise advantages over all valid steps
        adv_mean = (advantages * mask).sum() / n
        adv_var = ((advantages - adv_mean).pow(2) * mask).sum() / n
        adv = (advantages - adv_mean) / (adv_var.sqrt() + 1e-8)

        logp_all = F.log_softmax(logits, dim=-1)
        logp = logp_all.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        old_logp = F.log_softmax(old_logits, dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

        ratio = torch.exp(logp - old_logp)
        surr1 = ratio * adv
        surr2 = torch.clamp(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps) * adv
        entropy = -(logp_all.exp() * logp_all).sum(-1)

        loss = -torch.min(surr1, surr2) - self.ent_coef * entropy
        return (loss * mask).sum(dim=1) / mask.sum(dim=1)


num_envs = 128
rollout = 128
num_actions = 18


def get_inputs():
    return [
        torch.randn(num_envs, rollout, num_actions),
        torch.randn(num_envs, rollout, num_actions),
        torch.randint(0, num_actions, (num_envs, rollout)),
        torch.randn(num_envs, rollout),
        torch.randint(1, rollout + 1, (num_envs,)),
    ]


def get_init_inputs():
    return [0.2, 0.01]

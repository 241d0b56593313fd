import torch
import torch.nn as nn


PROMPTS = 64
GROUP = 8
TOKENS = 4096
CLIP_LOW = 0.2
CLIP_HIGH = 0.28
BETA = 0.04


class Model(nn.Module):
    """GRPO objective: group-relative advantages, clipped ratio and KL to the reference."""

    def __init__(self, clip_low, clip_high, beta):
        super().__init__()
        self.clip_low = clip_low
        self.clip_high = clip_high
        self.beta = beta

    def forward(self, logp, old_logp, ref_logp, rewards, mask):
        mean = rewards.mean(dim=1, keepdim=True)
        std = rewards.std(dim=1, keepdim=True)
        advantage = ((rewards - mean) / (std + 1e-4)).reshape(-1, 1)

        ratio = torch.exp(logp - old_logp)
        clipped = torch.clamp(ratio, 1.0 - self.clip_low, 1.0 + self.clip_high)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage)

        ref_diff = ref_logp - logp
        kl = torch.exp(ref_diff) - ref_diff - 1.0

        mask = mask.float()
        lengths = mask.sum(dim=1).clamp(min=1.0)
        per_token = self.beta * kl - surrogate
        loss = ((per_token * mask).sum(dim=1) / lengths).mean()

        mean_kl = ((kl * mask).sum(dim=1) / lengths).mean()
        is_clipped = (ratio != clipped).float()
        clip_fraction = (is_clipped * mask).sum() / mask.sum()
        return loss, mean_kl, clip_fraction


def get_inputs():
    rows = PROMPTS * GROUP
    old_logp = torch.log(1e-3 + 0.99 * torch.rand(rows, TOKENS))
    logp = old_logp + 0.15 * torch.randn(rows, TOKENS)
    ref_logp = old_logp + 0.2 * torch.randn(rows, TOKENS)
    rewards = torch.rand(PROMPTS, GROUP) + torch.randint(0, 2, (PROMPTS, GROUP))
    lengths = torch.randint(200, TOKENS + 1, (rows, 1))
    mask = torch.arange(TOKENS).unsqueeze(0) < lengths
    return [logp, old_logp, ref_logp, rewards, mask]


def get_init_inputs():
    return [CLIP_LOW, CLIP_HIGH, BETA]

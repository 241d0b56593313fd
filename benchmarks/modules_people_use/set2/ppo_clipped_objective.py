import torch
import torch.nn as nn


def masked_mean(values, mask, dim):
    return (values * mask).sum(dim=dim) / mask.sum(dim=dim).clamp(min=1.0)


class Model(nn.Module):
    """Clipped PPO policy loss with a k3 KL penalty to the reference policy, averaged over each response's tokens."""

    def __init__(self, clip_low=0.2, clip_high=0.28, kl_coef=0.04):
        super().__init__()
        self.clip_low = clip_low
        self.clip_high = clip_high
        self.kl_coef = kl_coef

    def forward(self, logprobs, old_logprobs, ref_logprobs, advantages, mask):
        ratio = torch.exp(logprobs - old_logprobs)
        adv = advantages.unsqueeze(1)
        unclipped = ratio * adv
        clipped = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high) * adv
        policy_loss = -torch.minimum(unclipped, clipped)

        delta = ref_logprobs - logprobs
        kl = torch.exp(delta) - delta - 1.0
        return masked_mean(policy_loss + self.kl_coef * kl, mask, dim=1)


num_responses = 512
max_tokens = 2048


def get_inputs():
    old = -2.0 * torch.rand(num_responses, max_tokens)
    new = old + 0.3 * torch.randn(num_responses, max_tokens)
    ref = old + 0.3 * torch.randn(num_responses, max_tokens)
    advantages = torch.randn(num_responses)
    lengths = torch.randint(16, max_tokens + 1, (num_responses, 1))
    mask = (torch.arange(max_tokens).unsqueeze(0) < lengths).float()
    return [new, old, ref, advantages, mask]


def get_init_inputs():
    return [0.2, 0.28, 0.04]

import torch
import torch.nn as nn


class Model(nn.Module):
    """Permutation invariant SI-SDR loss for separating three speakers."""

    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps
        perms = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
        self.register_buffer("perms", perms)

    def forward(self, est, ref):
        B, C, T = ref.shape
        est = est - est.mean(dim=-1, keepdim=True)
        ref = ref - ref.mean(dim=-1, keepdim=True)

        est = est.unsqueeze(2)  # [B, C_est, 1, T]
        ref = ref.unsqueeze(1)  # [B, 1, C_ref, T]
        dot = (est * ref).sum(dim=-1, keepdim=True)
        energy = ref.pow(2).sum(dim=-1, keepdim=True) + self.eps
        target = dot * ref / energy
        noise = est - target
        ratio = target.pow(2).sum(dim=-1) / (noise.pow(2).sum(dim=-1) + self.eps)
        si_sdr = 10 * torch.log10(ratio + self.eps)  # [B, C_est, C_ref]

        pairs = si_sdr.reshape(B, C * C)
        index = self.perms + C * torch.arange(C, device=est.device)  # flat position of (i, perm[i])
        scores = pairs[:, index.flatten()].view(B, -1, C).mean(dim=-1)
        best, _ = scores.max(dim=1)
        return -best.mean()


batch_size = 8
num_speakers = 3
num_samples = 24000


def get_inputs():
    return [
        torch.randn(batch_size, num_speakers, num_samples),
        torch.randn(batch_size, num_speakers, num_samples),
    ]


def get_init_inputs():
    return []

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Attentive statistics pooling with global context, for speaker embeddings."""

    def __init__(self, channels, attention_channels=128, global_context=True):
        super().__init__()
        self.eps = 1e-12
        self.global_context = global_context
        in_ch = channels * 3 if global_context else channels
        self.tdnn = nn.Conv1d(in_ch, attention_channels, kernel_size=1)
        self.conv = nn.Conv1d(attention_channels, channels, kernel_size=1)

    def _compute_statistics(self, x, m, dim=2):
        mean = (m * x).sum(dim)
        std = torch.sqrt((m * (x - mean.unsqueeze(dim)).pow(2)).sum(dim).clamp(self.eps))
        return mean, std

    def forward(self, x, lengths):
        L = x.shape[-1]
        mask = torch.arange(L, device=x.device).unsqueeze(0) < lengths.unsqueeze(1)
        mask = mask.unsqueeze(1)  # [N, 1, L]

        if self.global_context:
            total = mask.sum(dim=2, keepdim=True).float()
            mean, std = self._compute_statistics(x, mask / total)
            mean = mean.unsqueeze(2).repeat(1, 1, L)
            std = std.unsqueeze(2).repeat(1, 1, L)
            attn = torch.cat([x, mean, std], dim=1)
        else:
            attn = x

        attn = self.conv(torch.tanh(F.relu(self.tdnn(attn))))
        attn = attn.masked_fill(mask == 0, float("-inf"))
        attn = F.softmax(attn, dim=2)
        mean, std = self._compute_statistics(x, attn)
        return torch.cat((mean, std), dim=1)


batch_size = 16
channels = 512
frames = 200


def get_inputs():
    return [torch.randn(batch_size, channels, frames), torch.randint(50, frames + 1, (batch_size,))]


def get_init_inputs():
    return [channels, 128]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Multi-scale retention of RetNet in its parallel form, with normalised decay mask, group norm and swish gate."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.g_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.group_norm = nn.LayerNorm(self.head_dim, eps=1e-5, elementwise_affine=False)
        decay = torch.log(1 - 2 ** (-5 - torch.arange(num_heads, dtype=torch.float)))
        self.register_buffer("decay", decay)

    def get_decay_mask(self, length, device):
        index = torch.arange(length, device=device, dtype=torch.float)
        distance = index[:, None] - index[None, :]
        mask = torch.exp(distance.clamp(min=0) * self.decay[:, None, None])
        mask = torch.tril(mask)
        return mask / mask.sum(dim=-1, keepdim=True).sqrt()

    def forward(self, x):
        bsz, length, dim = x.shape
        q = self.q_proj(x).view(bsz, length, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(bsz, length, self.num_heads, self.head_dim).transpose(1, 2) * self.scaling
        v = self.v_proj(x).view(bsz, length, self.num_heads, self.head_dim).transpose(1, 2)
        g = self.g_proj(x)

        qk = q @ k.transpose(-1, -2) * self.get_decay_mask(length, x.device)
        qk = qk / qk.detach().abs().sum(dim=-1, keepdim=True).clamp(min=1.0)
        out = self.group_norm((qk @ v).transpose(1, 2))
        out = out.reshape(bsz, length, dim)
        return self.out_proj(F.silu(g) * out)


batch_size = 4
seq_len = 512
embed_dim = 512
num_heads = 8


def get_inputs():
    return [torch.randn(batch_size, seq_len, embed_dim)]


def get_init_inputs():
    return [embed_dim, num_heads]

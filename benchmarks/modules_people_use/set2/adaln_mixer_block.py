import torch
import torch.nn as nn


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Mlp(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.act = nn.GELU(approximate="tanh")
        self.fc2 = nn.Linear(hidden, features)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Model(nn.Module):
    """MLP-Mixer block of a diffusion backbone: token and channel mixing, each modulated and gated by the condition."""

    def __init__(self, num_tokens, dim, cond_dim, token_hidden, channel_hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.token_mlp = Mlp(num_tokens, token_hidden)
        self.channel_mlp = Mlp(dim, channel_hidden)
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(cond_dim, 6 * dim))

    def forward(self, x, c):
        shift_t, scale_t, gate_t, shift_c, scale_c, gate_c = self.ada(c).chunk(6, dim=1)
        h = modulate(self.norm1(x), shift_t, scale_t)
        h = self.token_mlp(h.transpose(1, 2)).transpose(1, 2)
        x = x + gate_t.unsqueeze(1) * h
        h = self.channel_mlp(modulate(self.norm2(x), shift_c, scale_c))
        return x + gate_c.unsqueeze(1) * h


def get_inputs():
    return [torch.randn(8, 256, 384), torch.randn(8, 384)]


def get_init_inputs():
    return [256, 384, 384, 192, 1536]

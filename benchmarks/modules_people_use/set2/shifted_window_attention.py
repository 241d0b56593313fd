import torch
import torch.nn as nn


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    B = windows.shape[0] // ((H // ws) * (W // ws))
    x = windows.view(B, H // ws, W // ws, ws, ws, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class Model(nn.Module):
    """Swin's shifted-window attention with relative position bias, pre-norm and residual."""

    def __init__(self, dim, resolution, num_heads, window_size=7, shift_size=3):
        super().__init__()
        self.H, self.W = resolution
        self.num_heads = num_heads
        self.ws = window_size
        self.shift = shift_size
        self.scale = (dim // num_heads) ** -0.5

        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.randn((2 * window_size - 1) ** 2, num_heads) * 0.5)

        coords = torch.stack(torch.meshgrid(torch.arange(window_size), torch.arange(window_size), indexing="ij"))
        coords = coords.flatten(1)
        rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + window_size - 1
        self.register_buffer("rel_index", rel[..., 0] * (2 * window_size - 1) + rel[..., 1])
        self.register_buffer("attn_mask", self._build_mask())

    def _build_mask(self):
        img = torch.zeros(1, self.H, self.W, 1)
        slices = (slice(0, -self.ws), slice(-self.ws, -self.shift), slice(-self.shift, None))
        region = 0
        for hs in slices:
            for ws_ in slices:
                img[:, hs, ws_, :] = region
                region += 1
        m = window_partition(img, self.ws).squeeze(-1)
        diff = m.unsqueeze(1) - m.unsqueeze(2)
        return torch.zeros_like(diff).masked_fill(diff != 0, -100.0)

    def forward(self, x):
        B, L, C = x.shape
        shortcut = x
        x = self.norm(x).view(B, self.H, self.W, C)
        x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        win = window_partition(x, self.ws)
        Bw, N, _ = win.shape

        qkv = self.qkv(win).reshape(Bw, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attn = q @ k.transpose(-2, -1)
        bias = self.bias_table[self.rel_index.view(-1)].view(N, N, -1).permute(2, 0, 1)
        attn = attn + bias.unsqueeze(0)
        nW = self.attn_mask.shape[0]
        attn = attn.view(B, nW, self.num_heads, N, N) + self.attn_mask[None, :, None]
        attn = attn.view(-1, self.num_heads, N, N).softmax(dim=-1)

        out = (attn @ v).transpose(1, 2).reshape(Bw, N, C)
        out = window_reverse(self.proj(out), self.ws, self.H, self.W)
        out = torch.roll(out, shifts=(self.shift, self.shift), dims=(1, 2))
        return shortcut + out.view(B, L, C)


dim = 96
heads = 3
side = 56


def get_inputs():
    return [torch.randn(4, side * side, dim)]


def get_init_inputs():
    return [dim, (side, side), heads]

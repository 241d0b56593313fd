import torch
import torch.nn as nn


class Model(nn.Module):
    """RWKV channel mixing: token shift, squared-ReLU key, sigmoid receptance gate."""

    def __init__(self, n_embd, dim_ffn, layer_id, n_layer):
        super().__init__()
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        with torch.no_grad():
            ratio = 1.0 - layer_id / n_layer
            ddd = torch.arange(n_embd, dtype=torch.float32).div(n_embd).view(1, 1, n_embd)
            self.time_maa_k = nn.Parameter(1.0 - torch.pow(ddd, ratio))
            self.time_maa_r = nn.Parameter(1.0 - torch.pow(ddd, ratio))
        self.key = nn.Linear(n_embd, dim_ffn, bias=False)
        self.receptance = nn.Linear(n_embd, n_embd, bias=False)
        self.value = nn.Linear(dim_ffn, n_embd, bias=False)

    def forward(self, x):
        xx = self.time_shift(x) - x
        xk = x + xx * self.time_maa_k
        xr = x + xx * self.time_maa_r
        k = torch.relu(self.key(xk)) ** 2
        kv = self.value(k)
        return torch.sigmoid(self.receptance(xr)) * kv


B, T, C = 8, 512, 512
FFN = 1792


def get_inputs():
    return [torch.randn(B, T, C)]


def get_init_inputs():
    return [C, FFN, 3, 12]

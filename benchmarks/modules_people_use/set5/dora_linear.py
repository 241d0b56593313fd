import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Linear layer with a weight-decomposed low-rank adapter (DoRA)."""

    def __init__(self, in_features, out_features, rank=16, alpha=32.0):
        super().__init__()
        self.base = nn.Linear(in_features, out_features)
        self.lora_A = nn.Parameter(torch.empty(rank, in_features))
        self.lora_B = nn.Parameter(torch.empty(out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=5**0.5)
        nn.init.normal_(self.lora_B, std=0.02)
        self.magnitude = nn.Parameter(self.base.weight.detach().norm(p=2, dim=1, keepdim=True))
        self.scaling = alpha / rank

    def forward(self, x):
        weight = self.base.weight + self.scaling * (self.lora_B @ self.lora_A)
        norm = weight.norm(p=2, dim=1, keepdim=True)
        return F.linear(x, self.magnitude * weight / norm, self.base.bias)


batch_size = 4
seq_len = 512
in_features = 1024
out_features = 2048


def get_inputs():
    return [torch.randn(batch_size, seq_len, in_features)]


def get_init_inputs():
    return [in_features, out_features]

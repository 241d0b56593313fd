import math
import torch
import torch.nn as nn


class Model(nn.Module):
    """Decoder's cross-attention sub-layer and feed-forward (pre-norm), with lengths of the encoder's output."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.wq = nn.Linear(d_model, d_model)
        self.wkv = nn.Linear(d_model, 2 * d_model, bias=False)
        self.wo = nn.Linear(d_model, d_model)
        self.fc1 = nn.Linear(d_model, d_ff)
        self.fc2 = nn.Linear(d_ff, d_model)

    def split_heads(self, t):
        b, n, _ = t.shape
        return t.view(b, n, self.n_heads, self.d_head).transpose(1, 2)

    def forward(self, tgt, memory, memory_lengths):
        q = self.split_heads(self.wq(self.norm1(tgt)))
        k, v = (self.split_heads(t) for t in self.wkv(memory).chunk(2, dim=-1))

        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.d_head)
        positions = torch.arange(memory.size(1), device=memory.device)
        valid = positions < memory_lengths.unsqueeze(1)
        scores = torch.where(valid[:, None, None, :], scores, torch.full_like(scores, -1e9))
        context = torch.matmul(torch.softmax(scores, dim=-1), v)

        b, h, n, d = context.shape
        x = tgt + self.wo(context.permute(0, 2, 1, 3).reshape(b, n, h * d))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


BS, TGT, SRC, D_MODEL, HEADS, D_FF = 8, 128, 300, 512, 8, 2048


def get_inputs():
    return [
        torch.randn(BS, TGT, D_MODEL),
        torch.randn(BS, SRC, D_MODEL),
        torch.randint(20, SRC + 1, (BS,)),
    ]


def get_init_inputs():
    return [D_MODEL, HEADS, D_FF]

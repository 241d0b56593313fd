import torch
import torch.nn as nn
import torch.nn.functional as F

BSZ = 2
SEQ_LEN = 1024
DIM = 2048
N_HEADS = 16
Q_LORA_RANK = 768
KV_LORA_RANK = 512
NOPE_DIM = 128
ROPE_DIM = 64
V_DIM = 128


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def apply_rope(x, cos, sin):
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)


class Model(nn.Module):
    """Multi-head latent attention (DeepSeek-V2), prefill."""

    def __init__(self, dim, n_heads, q_lora_rank, kv_lora_rank, nope_dim, rope_dim, v_dim, max_len):
        super().__init__()
        self.n_heads = n_heads
        self.nope_dim, self.rope_dim, self.v_dim = nope_dim, rope_dim, v_dim
        self.kv_lora_rank = kv_lora_rank
        self.wq_a = nn.Linear(dim, q_lora_rank, bias=False)
        self.q_norm = RMSNorm(q_lora_rank)
        self.wq_b = nn.Linear(q_lora_rank, n_heads * (nope_dim + rope_dim), bias=False)
        self.wkv_a = nn.Linear(dim, kv_lora_rank + rope_dim, bias=False)
        self.kv_norm = RMSNorm(kv_lora_rank)
        self.wkv_b = nn.Linear(kv_lora_rank, n_heads * (nope_dim + v_dim), bias=False)
        self.wo = nn.Linear(n_heads * v_dim, dim, bias=False)
        self.softmax_scale = (nope_dim + rope_dim) ** -0.5
        inv_freq = 1.0 / (10000 ** (torch.arange(0, rope_dim, 2).float() / rope_dim))
        angles = torch.outer(torch.arange(max_len).float(), inv_freq)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("mask", torch.full((max_len, max_len), float("-inf")).triu_(1), persistent=False)

    def forward(self, x):
        bsz, seqlen, _ = x.size()
        cos = self.cos[:seqlen].unsqueeze(1)
        sin = self.sin[:seqlen].unsqueeze(1)

        q = self.wq_b(self.q_norm(self.wq_a(x)))
        q = q.view(bsz, seqlen, self.n_heads, self.nope_dim + self.rope_dim)
        q_nope, q_pe = torch.split(q, [self.nope_dim, self.rope_dim], dim=-1)
        q = torch.cat([q_nope, apply_rope(q_pe, cos, sin)], dim=-1)

        kv, k_pe = torch.split(self.wkv_a(x), [self.kv_lora_rank, self.rope_dim], dim=-1)
        k_pe = apply_rope(k_pe.unsqueeze(2), cos, sin)
        kv = self.wkv_b(self.kv_norm(kv))
        kv = kv.view(bsz, seqlen, self.n_heads, self.nope_dim + self.v_dim)
        k_nope, v = torch.split(kv, [self.nope_dim, self.v_dim], dim=-1)
        k = torch.cat([k_nope, k_pe.expand(-1, -1, self.n_heads, -1)], dim=-1)

        scores = torch.einsum("bshd,bthd->bsht", q, k) * self.softmax_scale
        scores = scores + self.mask[:seqlen, :seqlen].unsqueeze(1)
        scores = F.softmax(scores, dim=-1)
        out = torch.einsum("bsht,bthd->bshd", scores, v)
        return self.wo(out.flatten(2))


def get_inputs():
    return [torch.randn(BSZ, SEQ_LEN, DIM)]


def get_init_inputs():
    return [DIM, N_HEADS, Q_LORA_RANK, KV_LORA_RANK, NOPE_DIM, ROPE_DIM, V_DIM, SEQ_LEN]

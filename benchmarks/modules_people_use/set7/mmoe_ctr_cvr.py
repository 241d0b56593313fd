import torch
import torch.nn as nn
import torch.nn.functional as F


BATCH = 16384
FIELDS = 20
VOCAB = 50000
EMB = 16
DENSE = 32
EXPERTS = 6
EXPERT_HIDDEN = 128
EXPERT_OUT = 64
TOWER_HIDDEN = 32


class Model(nn.Module):
    """Multi-gate mixture of experts ranker that predicts click and post-click conversion."""

    def __init__(self, vocab, emb, fields, dense, experts, hidden, out, tower):
        super().__init__()
        in_dim = fields * emb + dense
        self.embedding = nn.Embedding(vocab, emb)
        self.w1 = nn.Parameter(torch.randn(experts, in_dim, hidden) * in_dim ** -0.5)
        self.b1 = nn.Parameter(torch.zeros(experts, 1, hidden))
        self.w2 = nn.Parameter(torch.randn(experts, hidden, out) * hidden ** -0.5)
        self.b2 = nn.Parameter(torch.zeros(experts, 1, out))
        self.gate_ctr = nn.Linear(in_dim, experts, bias=False)
        self.gate_cvr = nn.Linear(in_dim, experts, bias=False)
        self.tower_ctr = nn.Sequential(nn.Linear(out, tower), nn.ReLU(), nn.Linear(tower, 1))
        self.tower_cvr = nn.Sequential(nn.Linear(out, tower), nn.ReLU(), nn.Linear(tower, 1))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.kaiming_normal_(m.weight)

    def forward(self, sparse_ids, dense):
        emb = self.embedding(sparse_ids).flatten(1)
        x = torch.cat([emb, torch.log1p(dense)], dim=1)

        h = F.relu(torch.matmul(x, self.w1) + self.b1)
        h = F.relu(torch.matmul(h, self.w2) + self.b2)

        gate_ctr = torch.softmax(self.gate_ctr(x), dim=-1)
        gate_cvr = torch.softmax(self.gate_cvr(x), dim=-1)
        mix_ctr = torch.einsum("be,ebd->bd", gate_ctr, h)
        mix_cvr = torch.einsum("be,ebd->bd", gate_cvr, h)

        p_ctr = torch.sigmoid(self.tower_ctr(mix_ctr)).squeeze(-1)
        p_cvr = torch.sigmoid(self.tower_cvr(mix_cvr)).squeeze(-1)
        return p_ctr, p_cvr, p_ctr * p_cvr


def get_inputs():
    sparse_ids = torch.randint(0, VOCAB, (BATCH, FIELDS))
    dense = torch.rand(BATCH, DENSE) * 20.0
    return [sparse_ids, dense]


def get_init_inputs():
    return [VOCAB, EMB, FIELDS, DENSE, EXPERTS, EXPERT_HIDDEN, EXPERT_OUT, TOWER_HIDDEN]

import torch
import torch.nn as nn


class Model(nn.Module):
    """Deep Interest Network: target-item attention over the click history, then a click logit."""

    def __init__(self, n_items, embed_dim, att_hidden, mlp_hidden):
        super().__init__()
        self.item_emb = nn.Embedding(n_items, embed_dim, padding_idx=0)
        self.att_fc1 = nn.Linear(4 * embed_dim, att_hidden)
        self.att_act = nn.PReLU(att_hidden)
        self.att_fc2 = nn.Linear(att_hidden, 1)
        self.mlp = nn.Sequential(
            nn.Linear(3 * embed_dim, mlp_hidden),
            nn.PReLU(),
            nn.Linear(mlp_hidden, 1),
        )

    def forward(self, history, target, hist_len):
        keys = self.item_emb(history)           # B, L, D
        query = self.item_emb(target)           # B, D
        B, L, D = keys.shape

        q = query.unsqueeze(1).expand(-1, L, -1)
        att_in = torch.cat([q, keys, q - keys, q * keys], dim=-1)
        h = self.att_fc1(att_in).view(B * L, -1)
        score = self.att_fc2(self.att_act(h)).view(B, L)

        mask = torch.arange(L, device=history.device)[None, :] < hist_len[:, None]
        score = torch.where(mask, score, torch.zeros_like(score))   # no softmax, as in the paper
        interest = torch.bmm(score.unsqueeze(1), keys).squeeze(1)

        feats = torch.cat([interest, query, interest * query], dim=-1)
        return self.mlp(feats)


NUM_ITEMS = 20000
EMB = 32
BATCH = 512
MAX_LEN = 50


def get_inputs():
    return [
        torch.randint(1, NUM_ITEMS, (BATCH, MAX_LEN)),
        torch.randint(1, NUM_ITEMS, (BATCH,)),
        torch.randint(1, MAX_LEN + 1, (BATCH,)),
    ]


def get_init_inputs():
    return [NUM_ITEMS, EMB, 36, 80]

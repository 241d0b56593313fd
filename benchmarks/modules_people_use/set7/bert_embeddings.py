import torch
import torch.nn as nn


BATCH = 32
SEQ_LEN = 512
VOCAB = 30522
DIM = 768
MAX_POS = 512
TYPES = 2


class Model(nn.Module):
    """BERT input embeddings: word + position + segment, followed by layer norm."""

    def __init__(self, vocab, dim, max_pos, types):
        super().__init__()
        self.word = nn.Embedding(vocab, dim, padding_idx=0)
        self.position = nn.Embedding(max_pos, dim)
        self.segment = nn.Embedding(types, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        for table in (self.word, self.position, self.segment):
            nn.init.normal_(table.weight, std=0.02)
        self.register_buffer("position_ids", torch.arange(max_pos).unsqueeze(0))

    def forward(self, input_ids, token_type_ids):
        pos = self.position_ids[:, : input_ids.size(1)]
        x = self.word(input_ids) + self.segment(token_type_ids) + self.position(pos)
        return self.norm(x)


def get_inputs():
    ids = torch.randint(0, VOCAB, (BATCH, SEQ_LEN))
    types = torch.randint(0, TYPES, (BATCH, SEQ_LEN))
    return [ids, types]


def get_init_inputs():
    return [VOCAB, DIM, MAX_POS, TYPES]

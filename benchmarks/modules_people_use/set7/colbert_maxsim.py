import torch
import torch.nn as nn
import torch.nn.functional as F


QUERY_LEN = 32
CANDIDATES = 1000
DOC_LEN = 180
DIM = 128


class Model(nn.Module):
    """ColBERT late interaction: MaxSim scores of one query against candidate documents."""

    def forward(self, query, docs, doc_lens):
        q = F.normalize(query, dim=-1)
        d = F.normalize(docs, dim=-1)
        sim = d @ q.t()
        pad = torch.arange(docs.size(1), device=docs.device) >= doc_lens.unsqueeze(1)
        sim = sim.masked_fill(pad.unsqueeze(-1), -1e4)
        return sim.max(dim=1).values.sum(dim=-1)


def get_inputs():
    query = torch.randn(QUERY_LEN, DIM)
    docs = torch.randn(CANDIDATES, DOC_LEN, DIM)
    doc_lens = torch.randint(40, DOC_LEN + 1, (CANDIDATES,))
    return [query, docs, doc_lens]


def get_init_inputs():
    return []

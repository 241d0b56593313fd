import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2048
NUM_FIELDS = 26
FIELD_SIZE = 20_000
EMBED_DIM = 16
LAYER_SIZES = [64, 64]


class Model(nn.Module):
    """Compressed interaction network over categorical field embeddings (xDeepFM's explicit part)."""

    def __init__(self, num_fields: int, field_size: int, embed_dim: int, layer_sizes: list):
        super().__init__()
        self.embedding = nn.Embedding(num_fields * field_size, embed_dim)
        self.register_buffer("offsets", torch.arange(num_fields) * field_size)
        self.convs = nn.ModuleList()
        prev = num_fields
        for size in layer_sizes:
            self.convs.append(nn.Conv1d(prev * num_fields, size, kernel_size=1))
            prev = size
        self.head = nn.Linear(sum(layer_sizes), 1)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        x0 = self.embedding(fields + self.offsets)  # (B, F, D)
        h, pooled = x0, []
        for conv in self.convs:
            outer = h.unsqueeze(2) * x0.unsqueeze(1)  # (B, H, F, D)
            h = F.relu(conv(outer.flatten(1, 2)))
            pooled.append(h.sum(dim=-1))
        return torch.sigmoid(self.head(torch.cat(pooled, dim=1))).squeeze(-1)


def get_inputs():
    return [torch.randint(0, FIELD_SIZE, (BATCH, NUM_FIELDS))]


def get_init_inputs():
    return [NUM_FIELDS, FIELD_SIZE, EMBED_DIM, LAYER_SIZES]

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4096
EMBED_DIM = 768


class Model(nn.Module):
    """Pairwise sigmoid loss between image and text embeddings (SigLIP)."""

    def __init__(self, init_scale=10.0, init_bias=-10.0):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(init_scale)))
        self.logit_bias = nn.Parameter(torch.tensor(init_bias))

    def forward(self, image_features, text_features):
        img, txt = F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1)
        logits = self.logit_scale.exp() * img @ txt.t() + self.logit_bias
        labels = 2 * torch.eye(logits.shape[0], device=logits.device, dtype=logits.dtype) - 1
        return -F.logsigmoid(labels * logits).sum() / logits.shape[0]


def get_inputs():
    return [torch.randn(BATCH, EMBED_DIM), torch.randn(BATCH, EMBED_DIM)]


def get_init_inputs():
    return [10.0, -10.0]

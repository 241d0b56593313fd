import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """ArcFace head: cosine logits with an additive angular margin on the true identity."""

    def __init__(self, in_features, out_features, s=64.0, m=0.5):
        super(Model, self).__init__()
        self.s = s
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.xavier_uniform_(self.weight)
        self.cos_m = math.cos(m)
        self.sin_m = math.sin(m)
        self.th = math.cos(math.pi - m)
        self.mm = math.sin(math.pi - m) * m

    def forward(self, embeddings, label):
        cosine = F.linear(F.normalize(embeddings), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-6, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        one_hot = torch.zeros_like(cosine)
        one_hot.scatter_(1, label.view(-1, 1), 1)
        output = (one_hot * phi) + ((1.0 - one_hot) * cosine)
        return output * self.s


batch_size = 256
embedding_size = 512
num_classes = 10572


def get_inputs():
    return [
        torch.randn(batch_size, embedding_size),
        torch.randint(0, num_classes, (batch_size,)),
    ]


def get_init_inputs():
    return [embedding_size, num_classes]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Proxy-Anchor loss for deep metric learning with one learnable proxy per class."""

    def __init__(self, num_classes, embed_dim, margin=0.1, alpha=32.0):
        super().__init__()
        self.proxies = nn.Parameter(torch.empty(num_classes, embed_dim))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")
        self.num_classes = num_classes
        self.margin = margin
        self.alpha = alpha

    def forward(self, embeddings, labels):
        cos = F.linear(F.normalize(embeddings, dim=-1), F.normalize(self.proxies, dim=-1))
        pos_mask = F.one_hot(labels, self.num_classes).to(cos.dtype)
        neg_mask = 1.0 - pos_mask

        pos_exp = torch.exp(-self.alpha * (cos - self.margin))
        neg_exp = torch.exp(self.alpha * (cos + self.margin))
        pos_sum = (pos_exp * pos_mask).sum(dim=0)
        neg_sum = (neg_exp * neg_mask).sum(dim=0)

        num_valid_proxies = (pos_mask.sum(dim=0) > 0).sum().clamp(min=1)
        pos_term = torch.log1p(pos_sum).sum() / num_valid_proxies
        neg_term = torch.log1p(neg_sum).sum() / self.num_classes
        return pos_term + neg_term


batch_size = 360
embed_dim = 512
num_classes = 196


def get_inputs():
    return [torch.randn(batch_size, embed_dim), torch.randint(0, num_classes, (batch_size,))]


def get_init_inputs():
    return [num_classes, embed_dim]

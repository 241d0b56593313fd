import torch
import torch.nn as nn


BATCH = 16
HEIGHT = 512
WIDTH = 512


def lovasz_gradient(sorted_labels):
    positives = sorted_labels.sum(dim=1, keepdim=True)
    intersection = positives - sorted_labels.cumsum(dim=1)
    union = positives + (1.0 - sorted_labels).cumsum(dim=1)
    jaccard = 1.0 - intersection / union
    steps = jaccard[:, 1:] - jaccard[:, :-1]
    return torch.cat([jaccard[:, :1], steps], dim=1)


class Model(nn.Module):
    """Binary Lovasz hinge loss for segmentation, computed image by image and averaged."""

    def __init__(self):
        super().__init__()

    def forward(self, logits, masks):
        logits = logits.flatten(1)
        labels = masks.flatten(1).float()
        signs = 2.0 * labels - 1.0
        errors = 1.0 - logits * signs
        errors, order = torch.sort(errors, dim=1, descending=True)
        gradient = lovasz_gradient(labels.gather(1, order))
        return (errors.relu() * gradient).sum(dim=1).mean()


def get_inputs():
    masks = torch.rand(BATCH, HEIGHT, WIDTH) < torch.linspace(0.1, 0.5, BATCH).view(-1, 1, 1)
    logits = torch.randn(BATCH, HEIGHT, WIDTH) + 1.5 * masks - 0.5
    return [logits, masks]


def get_init_inputs():
    return []

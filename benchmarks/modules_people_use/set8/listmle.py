import torch
import torch.nn as nn

N_QUERIES = 4096
SLATE = 240
PAD = -1.0


class Model(nn.Module):
    """ListMLE ranking loss over padded slates."""

    def __init__(self, eps=1e-10, padded_value_indicator=-1.0):
        super().__init__()
        self.eps = eps
        self.pad = padded_value_indicator

    def forward(self, y_pred, y_true):
        y_true_sorted, indices = y_true.sort(descending=True, dim=-1, stable=True)
        mask = y_true_sorted == self.pad

        preds_sorted = torch.gather(y_pred, dim=1, index=indices)
        preds_sorted = preds_sorted.masked_fill(mask, float("-inf"))

        max_pred_values, _ = preds_sorted.max(dim=1, keepdim=True)
        preds_minus_max = preds_sorted - max_pred_values
        cumsums = torch.cumsum(preds_minus_max.exp().flip(dims=[1]), dim=1).flip(dims=[1])

        observation_loss = torch.log(cumsums + self.eps) - preds_minus_max
        observation_loss = observation_loss.masked_fill(mask, 0.0)
        return torch.mean(torch.sum(observation_loss, dim=1))


def get_inputs():
    scores = torch.randn(N_QUERIES, SLATE)
    rel = torch.randint(0, 5, (N_QUERIES, SLATE)).float()
    n_docs = torch.randint(10, SLATE + 1, (N_QUERIES, 1))
    rel = rel.masked_fill(torch.arange(SLATE)[None] >= n_docs, PAD)
    return [scores, rel]


def get_init_inputs():
    return [1e-10, PAD]

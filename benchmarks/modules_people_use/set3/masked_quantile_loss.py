import torch
import torch.nn as nn
from typing import List


class Model(nn.Module):
    """Pinball loss over several quantiles, averaged over the valid steps of each series."""

    def __init__(self, quantiles: List[float]):
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(quantiles, dtype=torch.float32))

    def forward(self, y_pred: torch.Tensor, target: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        # y_pred (batch, horizon, n_quantiles), target (batch, horizon)
        errors = target.unsqueeze(-1) - y_pred
        losses = torch.max((self.quantiles - 1) * errors, self.quantiles * errors)
        losses = losses.sum(dim=-1)

        steps = torch.arange(target.size(1), device=target.device)
        mask = (steps[None, :] < lengths[:, None]).to(losses.dtype)
        return (losses * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


BATCH = 1024
HORIZON = 168
QUANTILES = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]


def get_inputs():
    return [
        torch.randn(BATCH, HORIZON, len(QUANTILES)),
        torch.randn(BATCH, HORIZON),
        torch.randint(1, HORIZON + 1, (BATCH,)),
    ]


def get_init_inputs():
    return [QUANTILES]

import torch
import torch.nn as nn

BATCH = 1024
HORIZON = 64
NUM_BINS = 255
LOW = -20.0
HIGH = 20.0


class Model(nn.Module):
    """Two-hot cross entropy on symlog-compressed returns over a uniform bin support."""

    def __init__(self, num_bins: int, low: float, high: float):
        super().__init__()
        self.num_bins = num_bins
        self.low = low
        self.bin_width = (high - low) / (num_bins - 1)

    def forward(self, logits: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
        target = returns.sign() * returns.abs().log1p()
        position = (target - self.low) / self.bin_width
        position = position.clamp(0.0, self.num_bins - 1 - 1e-3)
        upper_weight = position.frac()

        log_probs = logits.log_softmax(dim=-1)
        index = position.long().unsqueeze(-1)
        lower_logp = log_probs.gather(-1, index).squeeze(-1)
        upper_logp = log_probs.gather(-1, index + 1).squeeze(-1)
        return -torch.lerp(lower_logp, upper_logp, upper_weight).mean()


def get_inputs():
    return [torch.randn(BATCH, HORIZON, NUM_BINS), torch.randn(BATCH, HORIZON) * 50.0]


def get_init_inputs():
    return [NUM_BINS, LOW, HIGH]

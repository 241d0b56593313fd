import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Conformer convolution module with padding mask: LN, pointwise, GLU, depthwise, BN, Swish, pointwise, residual."""

    def __init__(self, d_model: int, kernel_size: int = 31):
        super().__init__()
        assert kernel_size % 2 == 1
        self.norm = nn.LayerNorm(d_model)
        self.pointwise_conv1 = nn.Conv1d(d_model, 2 * d_model, 1)
        self.depthwise_conv = nn.Conv1d(
            d_model, d_model, kernel_size, padding=(kernel_size - 1) // 2, groups=d_model
        )
        self.batch_norm = nn.BatchNorm1d(d_model)
        self.pointwise_conv2 = nn.Conv1d(d_model, d_model, 1)
        nn.init.normal_(self.batch_norm.running_mean, std=0.05)
        nn.init.uniform_(self.batch_norm.running_var, 0.05, 0.5)
        self.eval()

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        residual = x
        pad = torch.arange(x.size(1), device=x.device)[None, :] >= lengths[:, None]

        x = self.norm(x).transpose(1, 2)
        x = F.glu(self.pointwise_conv1(x), dim=1)
        x = x.masked_fill(pad.unsqueeze(1), 0.0)
        x = F.silu(self.batch_norm(self.depthwise_conv(x)))
        x = self.pointwise_conv2(x).transpose(1, 2)
        x = x.masked_fill(pad.unsqueeze(-1), 0.0)
        return residual + x


batch_size, frames, d_model = 8, 400, 256


def get_inputs():
    return [
        torch.randn(batch_size, frames, d_model),
        torch.randint(frames // 2, frames + 1, (batch_size,)),
    ]


def get_init_inputs():
    return [d_model]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Convolution module of a Conformer encoder layer (layer norm variant) with padding mask and residual."""

    def __init__(self, channels: int, kernel_size: int = 15, causal: bool = False):
        super().__init__()
        if causal:
            self.lorder = kernel_size - 1
            padding = 0
        else:
            assert (kernel_size - 1) % 2 == 0
            self.lorder = 0
            padding = (kernel_size - 1) // 2
        self.norm_in = nn.LayerNorm(channels)
        self.pointwise_conv1 = nn.Conv1d(channels, 2 * channels, kernel_size=1)
        self.depthwise_conv = nn.Conv1d(channels, channels, kernel_size, padding=padding, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.pointwise_conv2 = nn.Conv1d(channels, channels, kernel_size=1)
        self.activation = nn.SiLU()

    def forward(self, x: torch.Tensor, x_lens: torch.Tensor) -> torch.Tensor:
        # x: (batch, time, channels)
        residual = x
        mask_pad = torch.arange(x.size(1), device=x.device)[None, None, :] < x_lens[:, None, None]

        x = self.norm_in(x).transpose(1, 2)
        x = x.masked_fill(~mask_pad, 0.0)
        if self.lorder > 0:
            x = F.pad(x, (self.lorder, 0), "constant", 0.0)

        x = self.pointwise_conv1(x)
        x = F.glu(x, dim=1)
        x = x.masked_fill(~mask_pad, 0.0)
        x = self.depthwise_conv(x)

        x = x.transpose(1, 2)
        x = self.activation(self.norm(x))
        x = x.transpose(1, 2)

        x = self.pointwise_conv2(x)
        x = x.masked_fill(~mask_pad, 0.0)
        return residual + x.transpose(1, 2)


batch = 8
time = 400
d_model = 256


def get_inputs():
    return [torch.randn(batch, time, d_model), torch.randint(100, time + 1, (batch,))]


def get_init_inputs():
    return [d_model, 31]

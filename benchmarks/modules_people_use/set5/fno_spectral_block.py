import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Fourier neural operator layer in 2D: truncated spectral convolution plus a pointwise path, then GELU."""

    def __init__(self, channels, modes1, modes2):
        super().__init__()
        self.channels = channels
        self.modes1 = modes1
        self.modes2 = modes2
        scale = (2 / (channels + channels)) ** 0.5
        self.weights1 = nn.Parameter(scale * torch.randn(channels, channels, modes1, modes2, dtype=torch.cfloat))
        self.weights2 = nn.Parameter(scale * torch.randn(channels, channels, modes1, modes2, dtype=torch.cfloat))
        self.w = nn.Conv2d(channels, channels, 1)

    def compl_mul2d(self, input, weights):
        # (batch, in_channel, x, y), (in_channel, out_channel, x, y) -> (batch, out_channel, x, y)
        return torch.einsum("bixy,ioxy->boxy", input, weights)

    def forward(self, x):
        batchsize = x.shape[0]
        x_ft = torch.fft.rfft2(x)

        out_ft = torch.zeros(
            batchsize, self.channels, x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat, device=x.device
        )
        out_ft[:, :, : self.modes1, : self.modes2] = self.compl_mul2d(
            x_ft[:, :, : self.modes1, : self.modes2], self.weights1
        )
        out_ft[:, :, -self.modes1 :, : self.modes2] = self.compl_mul2d(
            x_ft[:, :, -self.modes1 :, : self.modes2], self.weights2
        )

        x1 = torch.fft.irfft2(out_ft, s=(x.size(-2), x.size(-1)))
        return F.gelu(x1 + self.w(x))


batch_size = 16
channels = 32
resolution = 64
modes = 12


def get_inputs():
    return [torch.randn(batch_size, channels, resolution, resolution)]


def get_init_inputs():
    return [channels, modes, modes]

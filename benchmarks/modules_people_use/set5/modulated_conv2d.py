import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """StyleGAN2 styled convolution: weights modulated per sample, demodulated, run as one grouped convolution."""

    def __init__(self, in_channels, out_channels, style_dim, kernel_size=3, eps=1e-8):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.eps = eps
        self.scale = (in_channels * kernel_size**2) ** -0.5
        self.weight = nn.Parameter(torch.randn(1, out_channels, in_channels, kernel_size, kernel_size))
        self.affine = nn.Linear(style_dim, in_channels)
        nn.init.ones_(self.affine.bias)
        self.noise_strength = nn.Parameter(torch.full((1,), 0.1))
        self.bias = nn.Parameter(torch.zeros(1, out_channels, 1, 1))

    def forward(self, x, w, noise):
        b, c, h, wd = x.shape
        style = self.affine(w).view(b, 1, c, 1, 1)
        weight = self.scale * self.weight * style
        demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + self.eps)
        weight = weight * demod.view(b, self.out_channels, 1, 1, 1)

        weight = weight.view(b * self.out_channels, c, self.kernel_size, self.kernel_size)
        out = F.conv2d(x.reshape(1, b * c, h, wd), weight, padding=self.kernel_size // 2, groups=b)
        out = out.view(b, self.out_channels, h, wd)
        out = out + self.noise_strength * noise + self.bias
        return F.leaky_relu(out, 0.2) * 2**0.5


batch_size = 8
in_channels = 256
out_channels = 128
style_dim = 512
resolution = 32


def get_inputs():
    return [
        torch.randn(batch_size, in_channels, resolution, resolution),
        torch.randn(batch_size, style_dim),
        torch.randn(batch_size, 1, resolution, resolution),
    ]


def get_init_inputs():
    return [in_channels, out_channels, style_dim]

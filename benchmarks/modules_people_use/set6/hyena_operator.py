import torch
import torch.nn as nn

BATCH = 2
SEQ_LEN = 4096
DIM = 512


class Model(nn.Module):
    """Order-2 Hyena mixer: short depthwise conv, gating and a long FFT convolution."""

    def __init__(self, dim: int, max_len: int, short_kernel: int = 3):
        super().__init__()
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.short_conv = nn.Conv1d(
            3 * dim, 3 * dim, short_kernel, padding=short_kernel - 1, groups=3 * dim
        )
        self.filter = nn.Parameter(torch.randn(dim, max_len) * 0.1)
        self.decay = nn.Parameter(torch.linspace(-6.0, -1.0, dim).exp().unsqueeze(-1))
        self.register_buffer("positions", torch.arange(max_len, dtype=torch.float32))
        self.skip = nn.Parameter(torch.randn(dim, 1))
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        length = u.shape[1]
        z = self.in_proj(u).transpose(1, 2)
        z = self.short_conv(z)[..., :length]
        x1, x2, v = z.chunk(3, dim=1)

        v = v * x1
        window = torch.exp(-self.decay * self.positions)
        h = torch.fft.rfft(self.filter * window, n=2 * length)
        y = torch.fft.irfft(torch.fft.rfft(v, n=2 * length) * h, n=2 * length)[..., :length]
        y = torch.addcmul(y, v, self.skip) * x2
        return self.out_proj(y.transpose(1, 2))


def get_inputs():
    return [torch.randn(BATCH, SEQ_LEN, DIM)]


def get_init_inputs():
    return [DIM, SEQ_LEN]

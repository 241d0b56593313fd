import torch
import torch.nn as nn

SAMPLE_RATE = 22050
N_FFT = 2048
HOP = 512
N_CLIPS = 32
N_SAMPLES = SAMPLE_RATE * 10


class Model(nn.Module):
    """Spectral centroid of every STFT frame, in Hz."""

    def __init__(self, sample_rate, n_fft, hop_length):
        super().__init__()
        self.n_fft = n_fft
        self.hop_length = hop_length
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("freqs", torch.linspace(0, sample_rate // 2, 1 + n_fft // 2).reshape(-1, 1))

    def forward(self, waveform):
        spec = torch.stft(waveform, self.n_fft, self.hop_length, window=self.window, center=True, return_complex=True)
        mag = spec.abs()
        return (self.freqs * mag).sum(dim=-2) / mag.sum(dim=-2).clamp_min(1e-8)


def get_inputs():
    return [torch.randn(N_CLIPS, N_SAMPLES) * 0.1]


def get_init_inputs():
    return [SAMPLE_RATE, N_FFT, HOP]

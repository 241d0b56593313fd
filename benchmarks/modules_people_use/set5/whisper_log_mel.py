import torch
import torch.nn as nn


class Model(nn.Module):
    """Log-mel front end the way Whisper does it: STFT power, mel filters, log10 with 8 decades of range."""

    def __init__(self, sample_rate=16000, n_fft=400, hop_length=160, n_mels=80):
        super().__init__()
        self.n_fft = n_fft
        self.hop_length = hop_length
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("filters", self._mel_filters(sample_rate, n_fft, n_mels))

    @staticmethod
    def _mel_filters(sample_rate, n_fft, n_mels):
        freqs = torch.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)
        max_mel = 2595.0 * torch.log10(torch.tensor(1.0 + sample_rate / 2 / 700.0))
        mels = torch.linspace(0.0, 1.0, n_mels + 2) * max_mel
        hz = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
        slopes = hz.unsqueeze(1) - freqs.unsqueeze(0)  # [n_mels + 2, n_freqs]
        width = hz[1:] - hz[:-1]
        down = -slopes[:-2] / width[:-1].unsqueeze(1)
        up = slopes[2:] / width[1:].unsqueeze(1)
        filters = torch.minimum(down, up).clamp(min=0.0)
        return filters * (2.0 / (hz[2:] - hz[:-2])).unsqueeze(1)

    def forward(self, audio):
        stft = torch.stft(audio, self.n_fft, self.hop_length, window=self.window, return_complex=True)
        magnitudes = stft[..., :-1].abs() ** 2
        mel_spec = self.filters @ magnitudes
        log_spec = torch.clamp(mel_spec, min=1e-10).log10()
        log_spec = torch.maximum(log_spec, log_spec.amax(dim=(1, 2), keepdim=True) - 8.0)
        return (log_spec + 4.0) / 4.0


batch_size = 8
sample_rate = 16000
seconds = 10


def get_inputs():
    return [torch.randn(batch_size, sample_rate * seconds)]


def get_init_inputs():
    return [sample_rate]

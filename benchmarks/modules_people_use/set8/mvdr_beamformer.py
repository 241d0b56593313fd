import torch
import torch.nn as nn

BATCH = 4
MICS = 6
SAMPLES = 128000
N_FFT = 1024
HOP = 256


class Model(nn.Module):
    """Mask-based MVDR beamformer (Souden) from multichannel waveforms to one enhanced waveform."""

    def __init__(self, n_fft, hop, ref_channel=0, diag_eps=1e-6):
        super().__init__()
        self.n_fft = n_fft
        self.hop = hop
        self.ref_channel = ref_channel
        self.diag_eps = diag_eps
        self.register_buffer("window", torch.hann_window(n_fft))

    def psd(self, spec, mask):
        mask = mask / (mask.sum(dim=-1, keepdim=True) + 1e-8)
        return torch.einsum("bcft,bdft->bfcd", spec * mask.unsqueeze(1), spec.conj())

    def forward(self, wav, mask_speech, mask_noise):
        b, c, n = wav.shape
        spec = torch.stft(wav.reshape(b * c, n), self.n_fft, self.hop, window=self.window, return_complex=True)
        spec = spec.view(b, c, spec.shape[-2], spec.shape[-1])
        psd_s = self.psd(spec, mask_speech)
        psd_n = self.psd(spec, mask_noise)

        eye = torch.eye(c, device=wav.device, dtype=psd_n.dtype)
        trace_n = psd_n.diagonal(dim1=-2, dim2=-1).real.sum(-1)
        loading = trace_n * self.diag_eps + 1e-8
        psd_n = psd_n + loading[..., None, None] * eye

        numerator = torch.linalg.solve(psd_n, psd_s)
        trace = numerator.diagonal(dim1=-2, dim2=-1).sum(-1)
        weights = numerator / (trace[..., None, None] + 1e-8)
        weights = weights[..., self.ref_channel]

        enhanced = torch.einsum("bfc,bcft->bft", weights.conj(), spec)
        return torch.istft(enhanced, self.n_fft, self.hop, window=self.window, length=n)


def get_inputs():
    frames = SAMPLES // HOP + 1
    mask = torch.rand(BATCH, N_FFT // 2 + 1, frames)
    return [0.1 * torch.randn(BATCH, MICS, SAMPLES), mask, 1 - mask]


def get_init_inputs():
    return [N_FFT, HOP]

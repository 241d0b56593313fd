import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
SAMPLES = 131_072
RESOLUTIONS = [(512, 128), (1024, 256), (2048, 512)]  # (n_fft, hop)


class Model(nn.Module):
    """Spectral convergence plus log-magnitude L1, averaged over several STFT resolutions."""

    def __init__(self, resolutions: list, eps: float = 1e-5):
        super().__init__()
        self.resolutions = resolutions
        self.eps = eps
        for n_fft, _ in resolutions:
            self.register_buffer(f"window_{n_fft}", torch.hann_window(n_fft))

    def forward(self, pred: torch.Tensor, target: torch.Tensor):
        both = torch.cat([pred, target], dim=0)
        sc_loss, mag_loss = 0.0, 0.0
        for n_fft, hop in self.resolutions:
            window = getattr(self, f"window_{n_fft}")
            spec = torch.stft(both, n_fft, hop_length=hop, window=window, return_complex=True)
            mag = spec.abs().clamp(min=self.eps)
            p, t = mag.chunk(2, dim=0)
            sc_loss = sc_loss + torch.linalg.vector_norm(t - p) / torch.linalg.vector_norm(t)
            log_p, log_t = mag.log().chunk(2, dim=0)
            mag_loss = mag_loss + F.l1_loss(log_p, log_t)
        n = len(self.resolutions)
        return sc_loss / n, mag_loss / n


def get_inputs():
    target = torch.randn(BATCH, SAMPLES) * 0.1
    return [target + 0.03 * torch.randn(BATCH, SAMPLES), target]


def get_init_inputs():
    return [RESOLUTIONS]

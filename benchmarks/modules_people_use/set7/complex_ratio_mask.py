import torch
import torch.nn as nn


BATCH = 16
FREQ = 257
FRAMES = 1000


class Model(nn.Module):
    """Speech enhancement: applies a bounded complex mask to a noisy spectrogram in polar form."""

    def forward(self, spec, mask):
        spec_re, spec_im = spec.unbind(dim=1)
        mask_re, mask_im = mask.unbind(dim=1)

        mag = torch.hypot(spec_re, spec_im)
        phase = torch.atan2(spec_im, spec_re)
        gain = torch.tanh(torch.hypot(mask_re, mask_im))
        turn = torch.atan2(mask_im, mask_re)

        mag = mag * gain
        phase = phase + turn
        return torch.stack([mag * torch.cos(phase), mag * torch.sin(phase)], dim=1)


def get_inputs():
    spec = torch.randn(BATCH, 2, FREQ, FRAMES)
    mask = torch.randn(BATCH, 2, FREQ, FRAMES)
    return [spec, mask]


def get_init_inputs():
    return []

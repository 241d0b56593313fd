import torch
import torch.nn as nn


class Model(nn.Module):
    """Classifier-free guidance with the standard deviation rescaling of Lin et al. (zero terminal SNR)."""

    def __init__(self, guidance_rescale=0.7):
        super().__init__()
        self.guidance_rescale = guidance_rescale

    def forward(self, noise_pred, guidance_scale):
        noise_pred_uncond, noise_pred_text = noise_pred.chunk(2)
        guidance_scale = guidance_scale.view(-1, 1, 1, 1)
        noise_cfg = noise_pred_uncond + guidance_scale * (noise_pred_text - noise_pred_uncond)

        std_text = noise_pred_text.std(dim=list(range(1, noise_pred_text.ndim)), keepdim=True)
        std_cfg = noise_cfg.std(dim=list(range(1, noise_cfg.ndim)), keepdim=True)
        noise_pred_rescaled = noise_cfg * (std_text / std_cfg)
        return self.guidance_rescale * noise_pred_rescaled + (1 - self.guidance_rescale) * noise_cfg


batch_size = 16
channels = 4
height = 128
width = 128


def get_inputs():
    return [torch.randn(2 * batch_size, channels, height, width), torch.rand(batch_size) * 8.0 + 1.0]


def get_init_inputs():
    return [0.7]

import torch
import torch.nn as nn


def append_dims(x, target_dims):
    """Appends dimensions to the end of a tensor until it has target_dims dimensions."""
    return x[(...,) + (None,) * (target_dims - x.ndim)]


class Model(nn.Module):
    """One DPM-Solver++(2M) step with classifier-free guidance, Karras noise levels, per-sample step index."""

    def __init__(self, n_steps=30, sigma_min=0.03, sigma_max=14.6, rho=7.0, cfg_scale=6.0):
        super().__init__()
        ramp = torch.linspace(0, 1, n_steps)
        min_inv_rho = sigma_min ** (1 / rho)
        max_inv_rho = sigma_max ** (1 / rho)
        self.register_buffer("sigmas", (max_inv_rho + ramp * (min_inv_rho - max_inv_rho)) ** rho)
        self.register_buffer("t", self.sigmas.log().neg())
        self.cfg_scale = cfg_scale

    def forward(self, x, cond, uncond, old_denoised, i):
        denoised = uncond + (cond - uncond) * self.cfg_scale

        t = append_dims(self.t[i], x.ndim)
        h = append_dims(self.t[i + 1], x.ndim) - t
        r = (t - append_dims(self.t[i - 1], x.ndim)) / h
        denoised_d = (1 + 1 / (2 * r)) * denoised - (1 / (2 * r)) * old_denoised
        x = torch.exp(-h) * x - torch.expm1(-h) * denoised_d
        return x, denoised


batch_size = 16
channels = 4
height, width = 128, 128
n_steps = 30


def get_inputs():
    return [
        torch.randn(batch_size, channels, height, width),
        torch.randn(batch_size, channels, height, width),
        torch.randn(batch_size, channels, height, width),
        torch.randn(batch_size, channels, height, width),
        torch.randint(1, n_steps - 1, (batch_size,)),
    ]


def get_init_inputs():
    return [n_steps]

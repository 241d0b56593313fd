import torch
import torch.nn as nn


BATCH = 16
HEIGHT = 512
WIDTH = 768


class Model(nn.Module):
    """RGB to HSV for colour augmentation; all three channels of the result lie between 0 and 1."""

    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, image):
        r, g, b = image.unbind(dim=1)
        value = image.amax(dim=1)
        low = image.amin(dim=1)
        chroma = value - low
        saturation = chroma / (value + self.eps)
        grey = chroma == 0
        divisor = torch.where(grey, torch.ones_like(chroma), chroma)
        from_red = (g - b) / divisor
        from_green = (b - r) / divisor + 2.0
        from_blue = (r - g) / divisor + 4.0
        hue = torch.where(value == r, from_red, torch.where(value == g, from_green, from_blue))
        hue = torch.remainder(hue / 6.0, 1.0)
        hue = hue.masked_fill(grey, 0.0)
        return torch.stack([hue, saturation, value], dim=1)


def get_inputs():
    return [torch.randint(0, 256, (BATCH, 3, HEIGHT, WIDTH)).float() / 255.0]


def get_init_inputs():
    return []

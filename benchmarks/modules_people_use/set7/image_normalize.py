import torch
import torch.nn as nn


BATCH = 16
HEIGHT = 720
WIDTH = 1280
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Model(nn.Module):
    """Turns a batch of uint8 HWC camera frames into normalised float NCHW network input."""

    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, frames):
        x = frames.permute(0, 3, 1, 2).float() / 255.0
        x = (x - self.mean) / self.std
        return x.contiguous()


def get_inputs():
    return [torch.randint(0, 256, (BATCH, HEIGHT, WIDTH, 3), dtype=torch.uint8)]


def get_init_inputs():
    return [MEAN, STD]

import math

import torch
import torch.nn as nn


BATCH = 8
IMAGE_H = 800
IMAGE_W = 1344
# three anchors a cell on the levels of strides 4 to 64
ANCHORS = 3 * (200 * 336 + 100 * 168 + 50 * 84 + 25 * 42 + 13 * 21)


class Model(nn.Module):
    """Decodes RPN deltas against xyxy anchors and clips the proposals to the image."""

    def __init__(self, height, width, max_scale=1000.0 / 16):
        super().__init__()
        self.max_log_scale = math.log(max_scale)
        self.register_buffer("limit", torch.tensor([width, height, width, height]).float())

    def forward(self, deltas, anchors):
        size = anchors[:, 2:] - anchors[:, :2]
        center = anchors[:, :2] + 0.5 * size
        shift = deltas[..., :2]
        log_scale = deltas[..., 2:].clamp(max=self.max_log_scale)
        new_center = shift * size + center
        half = 0.5 * torch.exp(log_scale) * size
        boxes = torch.cat([new_center - half, new_center + half], dim=-1)
        return torch.minimum(boxes.clamp(min=0.0), self.limit)


def get_inputs():
    deltas = torch.randn(BATCH, ANCHORS, 4) * 0.5
    corner = torch.rand(ANCHORS, 2) * torch.tensor([IMAGE_W - 64.0, IMAGE_H - 64.0])
    size = 16.0 + 240.0 * torch.rand(ANCHORS, 2)
    return [deltas, torch.cat([corner, corner + size], dim=1)]


def get_init_inputs():
    return [IMAGE_H, IMAGE_W]

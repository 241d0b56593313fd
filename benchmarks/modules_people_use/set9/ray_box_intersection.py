import torch
import torch.nn as nn


RAYS = 1920 * 1080
BOX_MIN = [-1.0, -1.0, -0.5]
BOX_MAX = [1.0, 1.0, 1.5]
NEAR = 0.05
FAR = 20.0


class Model(nn.Module):
    """Slab test of camera rays against the scene box; a ray that misses gets an interval of length zero."""

    def __init__(self, box_min, box_max, near, far):
        super().__init__()
        self.register_buffer("box_min", torch.tensor(box_min))
        self.register_buffer("box_max", torch.tensor(box_max))
        self.near = near
        self.far = far

    def forward(self, origins, directions):
        inverse = directions.reciprocal()
        t_low = (self.box_min - origins) * inverse
        t_high = (self.box_max - origins) * inverse
        t_enter = torch.minimum(t_low, t_high).amax(dim=-1).clamp(min=self.near)
        t_exit = torch.maximum(t_low, t_high).amin(dim=-1).clamp(max=self.far)
        return t_enter, torch.maximum(t_exit, t_enter)


def get_inputs():
    origins = torch.randn(RAYS, 3) * 0.2 + torch.tensor([0.0, 0.0, -3.0])
    directions = torch.randn(RAYS, 3) * 0.3 + torch.tensor([0.0, 0.0, 1.0])
    return [origins, directions / directions.norm(dim=-1, keepdim=True)]


def get_init_inputs():
    return [BOX_MIN, BOX_MAX, NEAR, FAR]

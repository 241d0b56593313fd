import torch
import torch.nn as nn


class Model(nn.Module):
    """YOLOv5 detection head at inference for one scale: raw map to boxes in pixels and class confidences."""

    def __init__(self, num_classes, anchors, stride):
        super().__init__()
        self.num_outputs = num_classes + 5
        self.num_anchors = len(anchors) // 2
        self.stride = stride
        self.register_buffer("anchors", torch.tensor(anchors).view(1, -1, 1, 1, 2))

    def forward(self, x):
        bs, _, ny, nx = x.shape
        x = x.view(bs, self.num_anchors, self.num_outputs, ny, nx).permute(0, 1, 3, 4, 2).contiguous()

        yv, xv = torch.meshgrid(torch.arange(ny, device=x.device), torch.arange(nx, device=x.device), indexing="ij")
        grid = torch.stack((xv, yv), 2).view(1, 1, ny, nx, 2).to(x.dtype) - 0.5

        xy, wh, obj, cls = x.sigmoid().split((2, 2, 1, self.num_outputs - 5), dim=4)
        xy = (xy * 2 + grid) * self.stride
        wh = (wh * 2) ** 2 * self.anchors
        x1y1 = xy - wh / 2
        x2y2 = xy + wh / 2
        out = torch.cat((x1y1, x2y2, obj, cls * obj), dim=4)
        return out.view(bs, self.num_anchors * ny * nx, self.num_outputs)


batch_size = 16
num_classes = 80
anchors = (30.0, 61.0, 62.0, 45.0, 59.0, 119.0)  # width, height of each anchor in pixels
stride = 16
ny = 40
nx = 40


def get_inputs():
    return [torch.randn(batch_size, len(anchors) // 2 * (num_classes + 5), ny, nx)]


def get_init_inputs():
    return [num_classes, anchors, stride]

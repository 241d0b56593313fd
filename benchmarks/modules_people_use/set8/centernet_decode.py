import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 16
num_classes = 80
out_h, out_w = 128, 128
K = 100
stride = 4


def _gather_feat(feat, ind):
    # feat: b c h w -> b k c
    feat = feat.flatten(2).transpose(1, 2)
    return feat.gather(1, ind.unsqueeze(2).expand(-1, -1, feat.size(2)))


class Model(nn.Module):
    """CenterNet decoding: heatmap peaks by max pooling, top-k, boxes from size and offset maps."""

    def __init__(self, K, stride):
        super().__init__()
        self.K = K
        self.stride = stride

    def forward(self, hm, wh, reg):
        b, c, h, w = hm.shape
        heat = hm.sigmoid()
        heat = heat * (F.max_pool2d(heat, 3, stride=1, padding=1) == heat).float()
        scores, inds = heat.view(b, -1).topk(self.K)
        clses = torch.div(inds, h * w, rounding_mode="floor").float()
        inds = inds % (h * w)
        centres = torch.stack([inds % w, torch.div(inds, w, rounding_mode="floor")], dim=-1).float()
        centres = centres + _gather_feat(reg, inds)
        half = _gather_feat(wh, inds) / 2
        boxes = torch.cat([centres - half, centres + half], dim=-1) * self.stride
        return torch.cat([boxes, scores.unsqueeze(-1), clses.unsqueeze(-1)], dim=-1)


def get_inputs():
    return [
        torch.randn(batch, num_classes, out_h, out_w) - 4.0,
        torch.rand(batch, 2, out_h, out_w) * 30,
        torch.rand(batch, 2, out_h, out_w),
    ]


def get_init_inputs():
    return [K, stride]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """RAFT flow upsampling: mask head on the hidden state, then a learned convex combination of 3x3 neighbours."""

    def __init__(self, hidden_dim=128, factor=8):
        super().__init__()
        self.factor = factor
        self.mask = nn.Sequential(
            nn.Conv2d(hidden_dim, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, factor * factor * 9, 1),
        )

    def forward(self, net, flow):
        N, _, H, W = flow.shape
        f = self.factor
        # scale the mask to balance gradients
        mask = 0.25 * self.mask(net)
        mask = mask.view(N, 1, 9, f, f, H, W)
        mask = torch.softmax(mask, dim=2)

        up_flow = F.unfold(f * flow, [3, 3], padding=1)
        up_flow = up_flow.view(N, 2, 9, 1, 1, H, W)

        up_flow = torch.sum(mask * up_flow, dim=2)
        up_flow = up_flow.permute(0, 1, 4, 2, 5, 3)
        return up_flow.reshape(N, 2, f * H, f * W)


batch_size = 4
hidden_dim = 128
height = 46
width = 62


def get_inputs():
    return [
        torch.randn(batch_size, hidden_dim, height, width),
        torch.randn(batch_size, 2, height, width),
    ]


def get_init_inputs():
    return [hidden_dim]

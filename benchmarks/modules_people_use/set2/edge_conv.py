import torch
import torch.nn as nn


class Model(nn.Module):
    """DGCNN EdgeConv on a given k-nearest-neighbour graph: [x_j - x_i, x_i] -> 1x1 conv -> max over neighbours."""

    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.conv = nn.Conv2d(2 * in_dim, out_dim, kernel_size=1, bias=False)
        self.bn = nn.BatchNorm2d(out_dim)
        self.act = nn.LeakyReLU(negative_slope=0.2)
        self.bn.running_mean.normal_(0.0, 0.1)
        self.bn.running_var.uniform_(0.5, 1.5)
        self.eval()

    @staticmethod
    def get_graph_feature(x, idx):
        B, C, N = x.shape
        k = idx.shape[-1]
        offset = torch.arange(B, device=x.device).view(-1, 1, 1) * N
        flat = (idx + offset).view(-1)
        pts = x.transpose(2, 1).contiguous()
        neighbours = pts.view(B * N, C)[flat].view(B, N, k, C)
        centre = pts.view(B, N, 1, C).repeat(1, 1, k, 1)
        return torch.cat((neighbours - centre, centre), dim=3).permute(0, 3, 1, 2).contiguous()

    def forward(self, x, idx):
        e = self.get_graph_feature(x, idx)
        e = self.act(self.bn(self.conv(e)))
        return e.max(dim=-1, keepdim=False)[0]


batch, points, neighbours, c_in, c_out = 4, 1024, 20, 64, 64


def get_inputs():
    return [
        torch.randn(batch, c_in, points),
        torch.randint(0, points, (batch, points, neighbours)),
    ]


def get_init_inputs():
    return [c_in, c_out]

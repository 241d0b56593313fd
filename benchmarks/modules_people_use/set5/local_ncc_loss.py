import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """VoxelMorph registration loss: windowed normalised cross correlation plus diffusion smoothness of the flow."""

    def __init__(self, win=9, smooth_weight=0.01):
        super().__init__()
        self.win = win
        self.smooth_weight = smooth_weight
        self.register_buffer("sum_filt", torch.ones(1, 1, win, win, win))

    def ncc(self, I, J):
        I2 = I * I
        J2 = J * J
        IJ = I * J
        pad = self.win // 2
        I_sum = F.conv3d(I, self.sum_filt, padding=pad)
        J_sum = F.conv3d(J, self.sum_filt, padding=pad)
        I2_sum = F.conv3d(I2, self.sum_filt, padding=pad)
        J2_sum = F.conv3d(J2, self.sum_filt, padding=pad)
        IJ_sum = F.conv3d(IJ, self.sum_filt, padding=pad)

        win_size = float(self.win**3)
        u_I = I_sum / win_size
        u_J = J_sum / win_size
        cross = IJ_sum - u_J * I_sum - u_I * J_sum + u_I * u_J * win_size
        I_var = I2_sum - 2 * u_I * I_sum + u_I * u_I * win_size
        J_var = J2_sum - 2 * u_J * J_sum + u_J * u_J * win_size
        cc = cross * cross / (I_var * J_var + 1e-5)
        return -cc.mean(dim=(1, 2, 3, 4))

    def forward(self, warped, fixed, flow):
        dz = (flow[:, :, 1:] - flow[:, :, :-1]).pow(2).mean(dim=(1, 2, 3, 4))
        dy = (flow[:, :, :, 1:] - flow[:, :, :, :-1]).pow(2).mean(dim=(1, 2, 3, 4))
        dx = (flow[..., 1:] - flow[..., :-1]).pow(2).mean(dim=(1, 2, 3, 4))
        smooth = (dx + dy + dz) / 3.0
        return self.ncc(fixed, warped) + self.smooth_weight * smooth


batch_size = 2
depth = 48
height = 64
width = 56


def get_inputs():
    return [
        torch.rand(batch_size, 1, depth, height, width),
        torch.rand(batch_size, 1, depth, height, width),
        torch.randn(batch_size, 3, depth, height, width),
    ]


def get_init_inputs():
    return [9, 0.01]

import torch
import torch.nn as nn

GRID = (256, 256, 128)
VOXEL = 0.02
IMG_H, IMG_W = 480, 640
FX, FY, CX, CY = 525.0, 525.0, 319.5, 239.5
TRUNC = 0.08
MAX_WEIGHT = 64.0


class Model(nn.Module):
    """Integrates one depth frame into a TSDF volume (KinectFusion)."""

    def __init__(self, voxel_size, origin, fx, fy, cx, cy, trunc, max_weight):
        super().__init__()
        self.voxel_size = voxel_size
        self.fx, self.fy, self.cx, self.cy = fx, fy, cx, cy
        self.trunc = trunc
        self.max_weight = max_weight
        self.register_buffer("origin", torch.tensor(origin))

    def forward(self, tsdf, weight, depth, cam_pose):
        nx, ny, nz = tsdf.shape
        h, w = depth.shape
        gx = self.origin[0] + self.voxel_size * torch.arange(nx, device=tsdf.device).view(nx, 1, 1)
        gy = self.origin[1] + self.voxel_size * torch.arange(ny, device=tsdf.device).view(1, ny, 1)
        gz = self.origin[2] + self.voxel_size * torch.arange(nz, device=tsdf.device).view(1, 1, nz)

        # world -> camera, R^T (p - t)
        rot, trans = cam_pose[:3, :3], cam_pose[:3, 3]
        gx, gy, gz = gx - trans[0], gy - trans[1], gz - trans[2]
        xc = rot[0, 0] * gx + rot[1, 0] * gy + rot[2, 0] * gz
        yc = rot[0, 1] * gx + rot[1, 1] * gy + rot[2, 1] * gz
        zc = rot[0, 2] * gx + rot[1, 2] * gy + rot[2, 2] * gz

        z_safe = zc.clamp(min=1e-3)
        u = torch.round(self.fx * xc / z_safe + self.cx).clamp(-1, w).long()
        v = torch.round(self.fy * yc / z_safe + self.cy).clamp(-1, h).long()
        valid = (zc > 1e-3) & (u >= 0) & (u < w) & (v >= 0) & (v < h)

        pix = v.clamp(0, h - 1) * w + u.clamp(0, w - 1)
        d = depth.reshape(-1)[pix]
        sdf = d - zc
        valid = valid & (d > 0) & (sdf >= -self.trunc)

        obs = (sdf / self.trunc).clamp(max=1.0)
        new_weight = weight + 1.0
        fused = (tsdf * weight + obs) / new_weight
        tsdf = torch.where(valid, fused, tsdf)
        weight = torch.where(valid, new_weight.clamp(max=self.max_weight), weight)
        return tsdf, weight


def get_inputs():
    tsdf = 2 * torch.rand(GRID) - 1
    weight = torch.randint(0, 20, GRID).float()
    depth = 0.6 + 2.5 * torch.rand(IMG_H, IMG_W)
    depth[torch.rand(IMG_H, IMG_W) < 0.05] = 0.0
    a = torch.tensor(0.1)
    pose = torch.eye(4)
    pose[0, 0], pose[0, 2], pose[2, 0], pose[2, 2] = a.cos(), a.sin(), -a.sin(), a.cos()
    pose[:3, 3] = torch.tensor([0.1, -0.05, 0.02])
    return [tsdf, weight, depth, pose]


def get_init_inputs():
    return [VOXEL, [-2.56, -2.56, 0.4], FX, FY, CX, CY, TRUNC, MAX_WEIGHT]

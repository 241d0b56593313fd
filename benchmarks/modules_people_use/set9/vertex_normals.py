import torch
import torch.nn as nn
import torch.nn.functional as F


ROWS = 1024
COLUMNS = 768


class Model(nn.Module):
    """Unit vertex normals of a triangle mesh, weighted by the areas of the adjacent faces."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, vertices, faces):
        i, j, k = faces.unbind(dim=1)
        a, b, c = vertices[i], vertices[j], vertices[k]
        face_normals = torch.cross(b - a, c - a, dim=1)
        normals = torch.zeros_like(vertices)
        for corner in (i, j, k):
            normals = normals.index_add(0, corner, face_normals)
        return F.normalize(normals, dim=1, eps=self.eps)


def terrain_faces(rows, columns):
    index = torch.arange(rows * columns).view(rows, columns)
    a, b = index[:-1, :-1].flatten(), index[:-1, 1:].flatten()
    c, d = index[1:, :-1].flatten(), index[1:, 1:].flatten()
    return torch.cat([torch.stack([a, b, c], dim=1), torch.stack([b, d, c], dim=1)])


def get_inputs():
    y, x = torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij")
    height = (
        torch.sin(x * 0.05) * 2.0 + torch.cos(y * 0.03) * 3.0 + torch.randn(ROWS, COLUMNS) * 0.2
    )
    vertices = torch.stack([x.float(), y.float(), height], dim=-1).view(-1, 3)
    return [vertices, terrain_faces(ROWS, COLUMNS)]


def get_init_inputs():
    return []

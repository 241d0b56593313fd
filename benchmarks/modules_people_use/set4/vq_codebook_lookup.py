import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Vector quantiser of VQ-VAE: nearest code per pixel, straight-through output and commitment loss."""

    def __init__(self, n_e, e_dim, beta=0.25):
        super().__init__()
        self.n_e = n_e
        self.e_dim = e_dim
        self.beta = beta
        self.embedding = nn.Embedding(self.n_e, self.e_dim)

    def forward(self, z):
        # reshape z -> (batch, height, width, channel) and flatten
        z = z.permute(0, 2, 3, 1).contiguous()
        z_flattened = z.view(-1, self.e_dim)

        # distances from z to embeddings e_j (z - e)^2 = z^2 + e^2 - 2 e * z
        d = torch.sum(z_flattened ** 2, dim=1, keepdim=True) + \
            torch.sum(self.embedding.weight ** 2, dim=1) - \
            2 * torch.matmul(z_flattened, self.embedding.weight.t())

        min_encoding_indices = torch.argmin(d, dim=1)
        z_q = self.embedding(min_encoding_indices).view(z.shape)

        # compute loss for embedding
        loss = self.beta * F.mse_loss(z_q.detach(), z) + F.mse_loss(z_q, z.detach())

        # preserve gradients
        z_q = z + (z_q - z).detach()
        return z_q.permute(0, 3, 1, 2), loss


batch_size = 16
n_e = 1024
e_dim = 64
height, width = 32, 32


def get_inputs():
    return [torch.randn(batch_size, e_dim, height, width)]


def get_init_inputs():
    return [n_e, e_dim]

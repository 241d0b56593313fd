import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8192
SIGNAL_DIM = 256
NUM_ATOMS = 1024
SPARSITY = 0.05


class Model(nn.Module):
    """One iteration of ISTA for sparse coding against a fixed dictionary."""

    def __init__(self, signal_dim: int, num_atoms: int, sparsity: float):
        super().__init__()
        atoms = torch.randn(signal_dim, num_atoms)
        atoms = atoms / atoms.norm(dim=0, keepdim=True)
        self.register_buffer("dictionary", atoms)
        # 1 / L, with L the largest eigenvalue of D^T D
        self.step = 1.0 / torch.linalg.matrix_norm(atoms, ord=2).item() ** 2
        self.sparsity = sparsity

    def forward(self, codes: torch.Tensor, signals: torch.Tensor) -> torch.Tensor:
        residual = codes @ self.dictionary.t() - signals
        gradient = residual @ self.dictionary
        return F.softshrink(codes - self.step * gradient, self.step * self.sparsity)


def get_inputs():
    return [torch.randn(BATCH, NUM_ATOMS) * 0.1, torch.randn(BATCH, SIGNAL_DIM)]


def get_init_inputs():
    return [SIGNAL_DIM, NUM_ATOMS, SPARSITY]

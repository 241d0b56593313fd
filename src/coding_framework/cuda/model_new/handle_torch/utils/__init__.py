"""torch.utils: only what kernels need."""

from __future__ import annotations

from . import cpp_extension

__all__ = ["cpp_extension"]

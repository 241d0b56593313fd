"""torch.nn.parameter"""

from __future__ import annotations

from ._module import Parameter

__all__ = ["Parameter"]

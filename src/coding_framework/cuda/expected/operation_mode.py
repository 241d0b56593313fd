"""Code that sees each of PyTorch's operations."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """PyTorch's own mode, without what a compiler needs: that imports torch._dynamo at the first
    operation, which takes a second, and ten where PyTorch has no byte code, while the GPU's lock is
    held."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

"""How a workload's kernel is written, apart from what it does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """Choices that no verdict depends on."""

    kernel: str = "k"
    value: str = "v"
    out: str = "o"
    index: str = "i"
    block: int = 256
    restrict: bool = False
    early_return: bool = False
    comment: bool = False

    def pointer(self, name: str, element: str = "float", *, const: bool = True) -> str:
        """A kernel parameter that points to elements of that C type."""
        space = " __restrict__ " if self.restrict else " "
        return f"{'const ' if const else ''}{element}*{space}{name}"


COMPACT = Style()

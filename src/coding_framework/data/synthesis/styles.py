"""How a kernel is written, apart from what it does. The compact style is what a small model learns
from; the varied ones keep larger data from teaching one set of names."""

from __future__ import annotations

import random
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


def varied_style(seed: int) -> Style:
    """A style drawn by seed."""
    rng = random.Random(seed)
    return Style(
        kernel=rng.choice(("k", "kernel", "fused_kernel", "compute", "op_kernel")),
        value=rng.choice(("v", "val", "value", "tmp")),
        out=rng.choice(("o", "out", "output", "dst")),
        index=rng.choice(("i", "idx", "gid", "tid")),
        block=rng.choice((128, 256, 512)),
        restrict=rng.random() < 0.5,
        early_return=rng.random() < 0.5,
        comment=rng.random() < 0.4,
    )

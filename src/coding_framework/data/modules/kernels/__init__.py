"""CUDA kernels for module tasks: a naive one for each, and faster ones where templates have them.

`kernels_of` is the only way in. A module of templates adds itself to `_WRITERS`: a function that
takes a `ModuleTask` and gives the variants that it has for it, none where it knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coding_framework.data.modules.kernels.naive import naive_kernel
from coding_framework.data.modules.kernels.short_variants import MOST_CHARACTERS, short_variants
from coding_framework.data.modules.kernels.tensor_core_variants import tensor_core_variants
from coding_framework.data.modules.records import KernelVariant, ModuleTask

__all__ = ["MOST_CHARACTERS", "kernels_of"]

Writer = Callable[[ModuleTask], Sequence[KernelVariant]]

_WRITERS: tuple[Writer, ...] = (short_variants, tensor_core_variants)
"""Of kernels above the naive one. Each sets `level` (from 1) and `reason`."""


def kernels_of(task: ModuleTask) -> list[KernelVariant]:
    """All variants, the naive one first, then by level."""
    faster = [variant for write in _WRITERS for variant in write(task)]
    return [naive_kernel(task), *sorted(faster, key=lambda variant: variant.level)]

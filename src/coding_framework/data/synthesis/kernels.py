"""Kernels of known level for a function: naive, and optimised with a one-line reason.

Guaranteed by construction: one C statement per step, so a kernel of three steps differs from one of
two by one line; every access is bounded by the sizes, which need not be multiples of anything.
Not guaranteed here: correctness, which the judge finds (`receipts`). Indices are `int`, so a tensor
has at most 2^31 - 1 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from coding_framework.data.synthesis import kernels_map, kernels_rows, kernels_tiles
from coding_framework.data.synthesis.layouts import Form
from coding_framework.data.synthesis.program import Program
from coding_framework.data.synthesis.styles import COMPACT, Style
from coding_framework.data.synthesis.workloads.base import Workload
from coding_framework.types import KernelExample

_WRITERS: Mapping[Form, Callable[[Program, Style], tuple[KernelExample, ...]]] = {
    "map": kernels_map.kernels,
    "reduce": kernels_rows.kernels,
    "normalize": kernels_rows.kernels,
    "scan": kernels_rows.kernels,
    "transpose": kernels_tiles.transposes,
    "columns": kernels_tiles.columns,
    "all": kernels_tiles.means,
    "matmul": kernels_tiles.products,
}


@lru_cache(maxsize=4096)
def kernels(function: Program | Workload, style: Style = COMPACT) -> tuple[KernelExample, ...]:
    """Naive first, then the optimised ones, best guess last."""
    if isinstance(function, Workload):
        return function.op.kernels(function, style)
    return _WRITERS[function.spec.form](function, style)

"""Fast kernels of where an extremum lies: many threads for each line, of which each keeps its best
value and the first place that has it."""

from __future__ import annotations

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fast_groups import (
    Groups,
    NotFasterError,
    column_end,
    grid_of,
    group_index,
    many_threads,
    one_writes,
    walk,
)
from coding_framework.data.modules.kernels.lowering import Lowering
from coding_framework.data.modules.kernels.naive_layers import Parameters
from coding_framework.data.modules.records import Operation

_SHUFFLES = "take(best, place, __shfl_xor_sync(~0u, best, d), __shfl_xor_sync(~0u, place, d));"
_OF_BLOCK = (
    "__shared__ float values[8];",
    "__shared__ int places[8];",
    "if (threadIdx.x % 32 == 0) {",
    "  values[threadIdx.x / 32] = best;",
    "  places[threadIdx.x / 32] = place;",
    "}",
    "__syncthreads();",
    "best = values[threadIdx.x % 8];",
    "place = places[threadIdx.x % 8];",
    f"for (int d = 4; d > 0; d /= 2) {_SHUFFLES}",
)
_OF_COLUMN = (
    "__shared__ float values[32][32];",
    "__shared__ int places[32][32];",
    "for (int d = blockDim.y / 2; d > 0; d /= 2) {",
    "  values[threadIdx.y][threadIdx.x] = best;",
    "  places[threadIdx.y][threadIdx.x] = place;",
    "  __syncthreads();",
    "  int y = (threadIdx.y + d) % blockDim.y;",
    "  take(best, place, values[y][threadIdx.x], places[y][threadIdx.x]);",
    "  __syncthreads();",
    "}",
)


def place_of_extremum(w: Lowering, o: Operation, parameters: Parameters) -> None:
    """`argmax` and `argmin` along an axis."""
    (axis,), keep = o.integers("axes"), o.flag("keepdim")
    groups = Groups(tuple(w.dims), (axis,)).merged()
    worker = groups.worker(w)
    if worker == "blocks" or w.post or (axis != len(w.dims) - 1 and many_threads(w, groups)):
        raise NotFasterError
    greater = o.name == "argmax"
    w.device += [
        "// keeps the better value, of equal ones the first",
        "__device__ void take(float& best, int& place, float e, int p) {",
        f"  if (e {'>' if greater else '<'} best || (e == best && p < place)) best = e, place = p;",
        "}",
        "",
    ]
    (head, *steps), at = walk(w, groups, groups.size, worker)
    joins: Lines = [f"for (int d = 16; d > 0; d /= 2) {_SHUFFLES}"]
    if worker == "block":
        joins += _OF_BLOCK
    lines = [
        *group_index(groups, worker),
        *column_end(groups, groups.size, worker),
        f"float best = {'-' if greater else ''}INFINITY;",
        "int place = 0;",
        head,
        *(f"  {line}" for line in (*steps, f"take(best, place, x[{at}], t);")),
        "}",
        *(_OF_COLUMN if worker == "columns" else joins),
        *one_writes(groups, worker),
        "o[g] = place;",
    ]
    dims = [("1" if a == axis else d) for a, d in enumerate(w.dims) if keep or a != axis]
    name, out = w.next_kernel()
    w.kernel(name, lines, (), out, dims, grid_of(w, groups, worker), "int64_t", True)

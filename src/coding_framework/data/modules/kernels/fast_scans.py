"""Fast scans along any axis, with many threads for each line.

along the last axis    a warp or a block a line: runs of 32 elements are scanned by shuffles
along another one      32 neighbouring lines a block, each in 32 or 8 parts with a thread each
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.fast_groups import (
    MANY_BLOCKS,
    SHORT,
    Groups,
    NotFasterError,
    grid_of,
    group_index,
)
from coding_framework.data.modules.kernels.lowering import BLOCK, Lowering, linear, product_of
from coding_framework.data.modules.records import extent


def scan_lines(w: Lowering, axis: int, start: str, join: str, direction: str) -> None:
    """A scan along an axis. join: of `a`, what came before, and `e`."""
    if axis == len(w.dims) - 1:
        _scan_rows(w, start, join, direction)
    else:
        _scan_columns(w, axis, start, join, direction)


def _scan_columns(w: Lowering, axis: int, start: str, join: str, direction: str) -> None:
    """32 neighbouring lines a block, and 32 or 8 threads for each line, which has a part for each:
    the parts' totals, then all elements."""
    groups = Groups(tuple(w.dims), (axis,)).merged()
    (one,) = groups.axes
    n = groups.dims[one]
    by_axis = groups.names | {one: f"{n} - 1 - t" if direction == "reverse" else "t"}
    place = linear([by_axis[a] for a in range(len(groups.dims))], groups.dims)
    put = [f"a = {join};", f"o[{place}] = a;"]
    if direction == "exclusive":
        put = put[::-1]
    lines = [
        "__shared__ float totals[32][32];",
        *group_index(groups, "columns"),
        f"int part = ({n} + blockDim.y - 1) / blockDim.y, first = threadIdx.y * part;",
        f"int end = g < {groups.number} ? min(first + part, {n}) : 0;",
        f"float a = {start}, e;",
        "for (int t = first; t < end; t++) {",
        f"  e = x[{place}];",
        f"  a = {join};",
        "}",
        "totals[threadIdx.y][threadIdx.x] = a;",
        "__syncthreads();",
        f"a = {start};",
        "for (int d = 0; d < threadIdx.y; d++) {",
        "  e = totals[d][threadIdx.x];",
        f"  a = {join};",
        "}",
        "for (int t = first; t < end; t++) {",
        f"  e = x[{place}];",
        *(f"  {line}" for line in put),
        "}",
    ]
    name, out = w.next_kernel()
    grid = grid_of(w, groups, "columns")
    w.kernel(name, lines, (), out, list(w.dims), grid, "float", True, restrict=True)


def _scan_rows(w: Lowering, start: str, join: str, direction: str) -> None:
    """A warp or a block a line, with four runs of 32 elements a warp at a time. A run is scanned by
    shuffles, and so are the totals of a block's 32 runs."""
    n, lines_before = w.dims[-1], product_of(w.dims[:-1])
    size, number = extent(n, w.main_values), extent(lines_before, w.main_values)
    by_warp = size < SHORT // 2
    if number < (8 * MANY_BLOCKS if by_warp else MANY_BLOCKS):
        raise NotFasterError
    at = f"i + k * {32 if by_warp else BLOCK}"
    here = f"{n} - 1 - ({at})" if direction == "reverse" else at
    read = f"{at} < {n} ? x[{here}] : {start}"
    if direction == "exclusive":
        read = f"{at} > 0 && {at} < {n} ? x[{at} - 1] : {start}"
    w.device += [
        "// each lane's value joined with those of the lanes before it",
        "__device__ float warp_scan(float v) {",
        "  for (int d = 1; d < 32; d *= 2) {",
        "    float a = __shfl_up_sync(~0u, v, d), e = v;",
        f"    if (threadIdx.x % 32 >= d) v = {join};",
        "  }",
        "  return v;",
        "}",
        "",
    ]
    row = _Row(n, start, join, read, f"if ({at} < {n}) o[{here}] = v;")
    lines = row.of_warp(lines_before) if by_warp else row.of_block()
    name, out = w.next_kernel()
    grid = f"({lines_before} + 7) / 8, {BLOCK}" if by_warp else f"{lines_before}, {BLOCK}"
    w.kernel(name, lines, (), out, list(w.dims), grid, "float", True)


@dataclass(frozen=True, slots=True)
class _Row:
    """What a scan along the last axis is made of, in C."""

    n: str
    start: str
    join: str
    """Of `a` and `e`."""
    read: str
    """Element `i` of run `k`."""
    write: str
    """Puts its result `v` there."""

    def of_warp(self, number: str) -> Lines:
        """number: of lines."""
        return [
            "int g = (blockIdx.x * blockDim.x + threadIdx.x) / 32, t = threadIdx.x % 32;",
            f"if (g >= {number}) return;",
            f"x += g * {self.n}, o += g * {self.n};",
            f"float before = {self.start}, a, e, r[4];",
            f"for (int i = t; i - t < {self.n}; i += 128) {{",
            f"  for (int k = 0; k < 4; k++) r[k] = {self.read};",
            "  for (int k = 0; k < 4; k++) {",
            "    a = before, e = warp_scan(r[k]);",
            f"    float v = {self.join};",
            f"    {self.write}",
            "    before = __shfl_sync(~0u, v, 31);",
            "  }",
            "}",
        ]

    def of_block(self) -> Lines:
        return [
            "__shared__ float s[32];",
            f"x += blockIdx.x * {self.n}, o += blockIdx.x * {self.n};",
            "int t = threadIdx.x;",
            f"float before = {self.start}, a, e, r[4];",
            f"for (int i = t; i - t < {self.n}; i += 1024) {{",
            f"  for (int k = 0; k < 4; k++) r[k] = {self.read};",
            "  for (int k = 0; k < 4; k++) {",
            "    r[k] = warp_scan(r[k]);",
            "    if (t % 32 == 31) s[k * 8 + t / 32] = r[k];",
            "  }",
            "  __syncthreads();",
            "  a = before, e = warp_scan(s[t % 32]);",
            f"  float all = {self.join};",
            "  for (int k = 0; k < 4; k++) {",
            "    int run = k * 8 + t / 32;",
            "    a = __shfl_sync(~0u, all, (run + 31) % 32), e = r[k];",
            "    if (run == 0) a = before;",
            f"    float v = {self.join};",
            f"    {self.write}",
            "  }",
            "  before = __shfl_sync(~0u, all, 31);",
            "  __syncthreads();",
            "}",
        ]

"""Four elements a thread, which keeps four loads of a thread on their way and not one."""

from __future__ import annotations

from collections.abc import Sequence

from coding_framework.data.cuda import Lines
from coding_framework.data.modules.kernels.lowering import (
    BLOCK,
    Lowering,
    Tensor,
    coordinates,
    product_of,
)

FOUR = 4 * BLOCK
"""Elements of a block."""


def fours(
    w: Lowering, body: Lines, dims: Sequence[str], kept: Sequence[str], *reads: Tensor
) -> None:
    """Each output by itself, as `Lowering.map`, but four of them a thread, a block's width apart:
    all values are there before the first is written. dims: the output's extents, by which `body`
    names coordinates. kept: what they are where `dims` has several as one."""
    number = product_of(dims)
    write = ["float v = r[s];", *w.post_lines(kept), "o[i] = v;"]
    lines = [
        f"int first = blockIdx.x * {FOUR} + threadIdx.x, count = {number};",
        "float r[4];",
        "for (int s = 0; s < 4; s++) {",
        f"  int i = min(first + s * {BLOCK}, count - 1);",
        *(f"  {line}" for line in (*coordinates(body, dims), *body)),
        "  r[s] = v;",
        "}",
        "for (int s = 0; s < 4; s++) {",
        f"  int i = first + s * {BLOCK};",
        "  if (i >= count) break;",
        *(f"  {line}" for line in (*coordinates(write, kept), *write)),
        "}",
    ]
    name, out = w.next_kernel()
    w.kernel(name, lines, reads, out, kept, grid_of_fours(number), "float", True)


def grid_of_fours(count: str) -> str:
    """Blocks and threads, where a thread has four elements."""
    return f"({count} + {FOUR - 1}) / {FOUR}, {BLOCK}"

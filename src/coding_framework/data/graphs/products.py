"""Kernels of matrix products: a thread for each value, or tiles in shared memory."""

from __future__ import annotations

from collections.abc import Callable

from coding_framework.data.graphs.emission import Emission
from coding_framework.data.graphs.expressions import Finish, Kernel
from coding_framework.data.graphs.nodes import Head, Node
from coding_framework.data.graphs.texts import (
    bracketed,
    elements_of,
    linear,
    split_index,
    times,
    unbracketed,
    used_coordinates,
)

TILED = 24
"""A product with so many rows, columns and terms is made in tiles."""


class Products(Emission):
    """Linear layers and products of two tensors."""

    def _product(self, head: Head, node: Node, finish: Finish) -> None:
        """Rows of one tensor times rows (or columns) of another."""
        self._prepare(head, node, 0)
        kernel = Kernel()
        self._open = kernel
        a, b = head.args[:2]
        inner = a.dims[-1]
        self.terms.append(inner)
        rank = len(head.dims)
        left = [f"i{n}" for n in range(rank - 1)] + ["r"]
        last = f"i{rank - 1}"
        batch = [f"i{n}" for n in range(rank - 2)]
        if head.kind == "linear":
            right = [last, "r"]
        elif head.name == "transposed":
            right = [*batch, last, "r"]
        else:
            right = [*batch, "r", last]
        start = "0.0f"
        if len(head.args) > 2:
            kernel.reads[self._made(head.args[2])] = "float"
            start = f"{self._made(head.args[2])}[{last}]"
        rows = head.dims[:-1] if head.kind == "linear" else head.dims[-2:-1]
        if all(e.value(self.real) >= TILED for e in (times(rows), head.dims[-1], inner)):
            sides = (lambda: self._value(kernel, a, left)), (lambda: self._value(kernel, b, right))
            self._tiles(kernel, head, node, (len(head.dims) - 1 - len(rows), right[-1] == "r"),
                        sides, start, finish)  # fmt: skip
            return
        lines, text = self._looped(
            kernel,
            lambda: (
                f"{bracketed(self._value(kernel, a, left))} * "
                f"{bracketed(self._value(kernel, b, right))}"
            ),
        )
        body = [
            f"float v = {start};",
            f"for (int r = 0; r < {inner.text}; r++) {{",
            *(f"  {line}" for line in (*lines, f"v += {text};")),
            "}",
        ]
        self._threads(kernel, head, node, body, finish)

    def _tiles(
        self, kernel: Kernel, head: Head, node: Node, form: tuple[int, bool],
        sides: tuple[Callable[[], str], Callable[[], str]], start: str, finish: Finish,
    ) -> None:  # fmt: skip
        """A block makes 64 rows and columns of a product, 16 terms at a time. form: how many axes
        are of batches, and whether the right side lies with its terms one behind the other."""
        batches, inner_first = form
        rank, inner = len(head.dims), head.args[0].dims[-1]
        rows, columns = head.dims[batches:-1], head.dims[-1]
        row = f"i{batches}" if len(rows) == 1 else "i"
        column = f"i{rank - 1}"
        count = elements_of(rows)
        own = [f"i{n}" for n in range(rank)]
        split = split_index(row, own[batches:-1], rows)

        def filled(
            name: str, place: str, side: Callable[[], str], more: list[str], ok: str
        ) -> list[str]:
            lines, text = self._looped(kernel, side)
            said = f"r < {inner.text} && {ok} ? {bracketed(text)} : 0.0f"
            return used_coordinates([*place.split("\n"), *more, *lines], f"{name} = {said};")

        of_left = filled(
            "left[p % 16][p / 16]",
            f"int r = start + p % 16;\nint {row} = blockIdx.y * 64 + p / 16;",
            sides[0], split, f"{row} < {count}",
        )  # fmt: skip
        at = ("p % 16", "p / 16") if inner_first else ("p / 64", "p % 64")
        of_right = filled(
            f"right[{at[0]}][{at[1]}]",
            f"int r = start + {at[0]};\nint {column} = blockIdx.x * 64 + {at[1]};",
            sides[1], [], f"{column} < {columns.text}",
        )  # fmt: skip
        kernel.lines = []
        written = finish("v")
        flat = f"{row} * {columns.factor} + {column}" if not batches else linear(own, head.dims)
        ends = used_coordinates(
            [
                f"int {row} = blockIdx.y * 64 + threadIdx.x / 16 + p / 4 * 16;",
                f"int {column} = blockIdx.x * 64 + threadIdx.x % 16 + p % 4 * 16;",
                f"if ({row} >= {count} || {column} >= {columns.text}) continue;",
                *split,
                f"float v = sum[p / 4][p % 4]{'' if start == '0.0f' else f' + {start}'};",
                *kernel.lines,
            ],
            f"o[{flat}] = {unbracketed(written)};",
        )
        body = [
            "__shared__ float left[16][65], right[16][65];",
            *split_index("blockIdx.z", own[:batches], head.dims[:batches]),
            "float sum[4][4] = {};",
            f"for (int start = 0; start < {inner.text}; start += 16) {{",
            "  for (int p = threadIdx.x; p < 1024; p += 256) {",
            *(f"    {line}" for line in of_left),
            "  }",
            "  for (int p = threadIdx.x; p < 1024; p += 256) {",
            *(f"    {line}" for line in of_right),
            "  }",
            "  __syncthreads();",
            "  for (int r = 0; r < 16; r++) {",
            "    #pragma unroll",
            "    for (int p = 0; p < 16; p++)",
            "      sum[p / 4][p % 4] += left[r][threadIdx.x / 16 + p / 4 * 16]"
            " * right[r][threadIdx.x % 16 + p % 4 * 16];",
            "  }",
            "  __syncthreads();",
            "}",
            "#pragma unroll",
            "for (int p = 0; p < 16; p++) {",
            *(f"  {line}" for line in ends),
            "}",
        ]
        grid = f"({columns.text} + 63) / 64, ({count} + 63) / 64"
        grid += f", {elements_of(head.dims[:batches])}" * bool(batches)
        self._emit(kernel, node, body, f"dim3({grid}), 256")

"""Kernels that add up, or walk a line twice: reductions along axes, softmax, norms of a line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coding_framework.data.graphs.emission import Emission
from coding_framework.data.graphs.expressions import LIGHT, Finish, Kernel, Together
from coding_framework.data.graphs.nodes import Head, Node
from coding_framework.data.graphs.texts import (
    bracketed,
    coordinates,
    elements_of,
    linear,
    split_index,
    times,
    unbracketed,
)
from coding_framework.data.modules.kernels.lowering import JOINS, Join
from coding_framework.data.modules.pointwise import c_literal

STARTS: dict[str, tuple[str, Join]] = {
    "sum": ("0.0f", "sum"),
    "max": ("-INFINITY", "max"),
    "min": ("INFINITY", "min"),
}
SHORT, WIDE, LONG = 32, 1024, 256
"""Of terms that lie one behind the other: so many are a warp's at least and at most, more a
block's. Of others a block adds up so many, where results are few and a thread would."""
MANY = 8192
"""Results that keep a GPU busy with one thread each."""
FEW, ENDLESS = 32, 16384
"""So few results of so many terms keep it busy when many blocks share the terms of each."""


def warp_function(join: Join) -> list[str]:
    """The function that joins the values of the 32 threads of a warp."""
    text = JOINS[join].format(a="v", e="__shfl_xor_sync(~0u, v, d)")
    return [
        f"// the {join} over the 32 threads of a warp, for all of them",
        f"__device__ float warp_{join}(float v) {{",
        f"  for (int d = 16; d > 0; d /= 2) {text}",
        "  return v;",
        "}",
        "",
    ]


@dataclass(frozen=True, slots=True)
class Workers:
    """Who makes a result: a thread (None), or the threads of a warp or a block, which take turns at
    its terms."""

    together: Together | None

    @classmethod
    def of(cls, terms: int, results: int, *, in_line: bool) -> Workers:
        """in_line: whether the terms lie one behind the other."""
        if in_line and terms >= SHORT:
            return cls("warp" if terms <= WIDE else "block")
        return cls("block" if results < MANY and terms >= LONG else None)

    def top(self, index: str, count: str) -> list[str]:
        """What names the result."""
        if self.together == "block":
            return [f"int {index} = blockIdx.x;"]
        own = "blockIdx.x * blockDim.x + threadIdx.x"
        own = f"({own}) / 32" if self.together else own
        return [f"int {index} = {own};", f"if ({index} >= {count}) return;"]

    def grid(self, count: str) -> str:
        if self.together == "block":
            return f"{count}, 256"
        return f"({count} + {7 if self.together else 255}) / {8 if self.together else 256}, 256"

    def loop(self, length: str) -> str:
        if self.together is None:
            return f"for (int r = 0; r < {length}; r++) {{"
        start, step = ("threadIdx.x", 256) if self.together == "block" else ("threadIdx.x % 32", 32)
        return f"for (int r = {start}; r < {length}; r += {step}) {{"

    def joined(self, join: Join, name: str) -> list[str]:
        return [f"{name} = {self.together}_{join}({name});"] if self.together else []

    def first_alone(self) -> list[str]:
        """The others have done their part."""
        return {
            None: [], "warp": ["if (threadIdx.x % 32 > 0) return;"],
            "block": ["if (threadIdx.x > 0) return;"],
        }[self.together]  # fmt: skip


class Reductions(Emission):
    """Those kinds of heads."""

    def _reduce(self, head: Head, node: Node, finish: Finish) -> None:
        """Along axes: a sum, a mean, an extremum."""
        self._prepare(head, node, LIGHT)
        kernel = Kernel()
        self._open = kernel
        (x,) = head.args
        inner = [x.dims[a] for a in head.axes]
        total = times(inner)
        self.terms.append(total)
        length = elements_of(inner)
        names = [f"r{n}" for n in range(len(inner))] if len(inner) > 1 else ["r"]
        outer = iter(range(len(head.dims)))
        places: list[str] = []
        for axis in range(len(x.dims)):
            if axis in head.axes:
                places.append(names[head.axes.index(axis)])
                if head.keepdim:
                    next(outer)
            else:
                places.append(f"i{next(outer)}")
        joined = "sum" if head.name in ("mean", "norm") else head.name
        start, join = STARTS[joined]
        lines, value = self._looped(kernel, lambda: self._value(kernel, x, places))
        value = unbracketed(value)
        if head.name == "norm":
            lines.append(f"float e = {value};")
            value = "e * e"
        inside = [*split_index("r", names, inner), *lines, JOINS[join].format(a="a", e=value)]
        end = {"mean": f"a / {bracketed(length)}", "norm": "sqrtf(a)"}.get(head.name, "a")
        results, terms = times(head.dims).value(self.real), total.value(self.real)
        tail = [*kernel.lines]
        kernel.lines = []
        written = finish(bracketed(end) if node is not head else end)
        tail += [*kernel.lines, f"o[i] = {unbracketed(written)};"]
        count = elements_of(head.dims)
        before = [*coordinates(head.dims), f"float a = {start};"]
        if results <= FEW and terms >= ENDLESS:
            self.joins["block", join] = None
            self._shared(kernel, node, join, length, inside, before, tail)
            return
        in_line = tuple(head.axes) == tuple(range(len(x.dims) - len(head.axes), len(x.dims)))
        workers = self._workers(terms, results, join, in_line=in_line)
        loop = [workers.loop(length), *(f"  {line}" for line in inside), "}"]
        body = [*before, *loop, *workers.joined(join, "a"), *workers.first_alone(), *tail]
        self._emit(kernel, node, [*workers.top("i", count), *body], workers.grid(count))

    def _workers(self, terms: int, results: int, *joins: Join, in_line: bool) -> Workers:
        """With the functions by which they add up."""
        found = Workers.of(terms, results, in_line=in_line)
        if found.together:
            self.joins |= dict.fromkeys((found.together, join) for join in joins)
        return found

    def _shared(
        self, kernel: Kernel, node: Node, join: Join, length: str, inside: list[str],
        before: list[str], end: list[str],
    ) -> None:  # fmt: skip
        """A reduction in two kernels: many blocks take a part of the terms each, then one takes
        what they have. before: its coordinates and the start; end: what makes the result of it."""
        n = self.number + 1
        out, parts, kept = self._planned(node), f"parts{n}", f"w{n}"
        count = elements_of(node.dims)
        *places, start = before
        self.host += [
            f"int {parts} = min(256, ({length} + 4095) / 4096);",
            f"auto {kept} = torch::empty({{{count}, {parts}}}, {out}.options());",
        ]
        found = [
            "int i = blockIdx.y;",
            *before,
            f"for (int r = blockIdx.x * 256 + threadIdx.x; r < {length}; r += 256 * gridDim.x) {{",
            *(f"  {line}" for line in inside),
            "}",
            f"a = block_{join}(a);",
            "if (threadIdx.x == 0) o[i * gridDim.x + blockIdx.x] = a;",
        ]
        self._launch(f"kernel{n}", kernel, found, f"dim3({parts}, {count}), 256", kept)
        kernel.reads[kept] = "float"
        step = JOINS[join].format(a="a", e=f"{kept}[i * {parts} + r]")
        ended = [
            "int i = blockIdx.x;",
            start,
            f"for (int r = threadIdx.x; r < {parts}; r += 256) {step}",
            f"a = block_{join}(a);",
            "if (threadIdx.x > 0) return;",
            *places,
            *end,
        ]
        self._launch(f"finish{n}", kernel, ended, f"{count}, 256", out, parts)

    def _row(self, head: Head, node: Node, finish: Finish) -> None:
        """Along one axis: numbers of the whole line, then a value for each of its elements."""
        self._prepare(head, node, LIGHT)
        kernel = Kernel()
        self._open = kernel
        x, *given = head.args
        (axis,) = head.axes
        length = x.dims[axis]
        self.terms.append(length)
        places = [f"i{a}" for a in range(len(x.dims))]
        places[axis] = "r"
        lines, value = self._looped(kernel, lambda: self._value(kernel, x, places))
        element = [*lines, f"float e = {unbracketed(value)};"]
        if any(kernel.lines):
            raise ValueError("lines outside a loop")
        others = [d for a, d in enumerate(x.dims) if a != axis]
        rows = elements_of(others)
        joins: tuple[Join, ...] = ("max", "sum") if "softmax" in head.name else ("sum",)
        workers = self._workers(
            length.value(self.real), times(others).value(self.real), *joins,
            in_line=axis == len(x.dims) - 1,
        )  # fmt: skip
        loop = workers.loop(length.text)

        def walk(step: str, join: Join, name: str, start: str) -> list[str]:
            return [
                f"float {name} = {start};",
                loop,
                *(f"  {line}" for line in (*element, step)),
                "}",
                *workers.joined(join, name),
            ]

        n, eps = length.factor, head.numbers.get("eps", 0.0)
        body: list[str]
        if head.name in ("softmax", "log_softmax"):
            body = walk("most = fmaxf(most, e);", "max", "most", "-INFINITY")
            body += walk("total += expf(e - most);", "sum", "total", "0.0f")
            end = "expf(e - most) / total"
            if head.name == "log_softmax":
                body.append("float least = most + logf(total);")
                end = "e - least"
        elif head.name == "layer_norm":
            body = [*walk("mean += e;", "sum", "mean", "0.0f"), f"mean = mean / {n};"]
            body += walk("inverse += (e - mean) * (e - mean);", "sum", "inverse", "0.0f")
            body.append(f"inverse = rsqrtf(inverse / {n} + {c_literal(eps)});")
            end = "(e - mean) * inverse"
        else:
            body = walk("length += e * e;", "sum", "length", "0.0f")
            body.append("length = fmaxf(sqrtf(length), 1e-12f);")
            end = "e / length"
        for sign, one in zip("*+", given, strict=False):
            kernel.reads[self._made(one)] = "float"
            end = f"{end} {sign} {self._made(one)}[r]"
        own = [f"i{a}" for a in range(len(x.dims))]
        own[axis] = "r"
        kernel.lines = []
        written = self._renamed(finish, bracketed(end) if node is not head else end, axis)
        ends = [*element, *kernel.lines, f"o[{linear(own, x.dims)}] = {unbracketed(written)};"]
        body += [loop, *(f"  {line}" for line in ends), "}"]
        names = [f"i{a}" for a in range(len(x.dims)) if a != axis]
        where = split_index("g", names, others)
        if len(others) == 1:
            where = [f"int {names[0]} = g;"]
        self._emit(kernel, node, [*workers.top("g", rows), *where, *body], workers.grid(rows))

    def _renamed(self, finish: Finish, value: str, axis: int) -> str:
        """What ends a line's element: its coordinate along the line is `r` there."""
        kernel = self._open
        text = finish(value)
        kernel.lines = [re.sub(rf"\bi{axis}\b", "r", line) for line in kernel.lines]
        return re.sub(rf"\bi{axis}\b", "r", text)

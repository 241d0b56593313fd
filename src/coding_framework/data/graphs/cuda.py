"""The kernels of a graph: one for each loop and for each tensor that several read, with what comes
before and after it where it is read and written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from coding_framework.data.graphs.emission import SIZES, shape_of
from coding_framework.data.graphs.expressions import FUNCTIONS, LIGHT, Finish, Kernel
from coding_framework.data.graphs.nodes import Head, Node
from coding_framework.data.graphs.products import Products
from coding_framework.data.graphs.reductions import Reductions, warp_function
from coding_framework.data.graphs.texts import (
    bracketed,
    coordinates,
    elements_of,
    linear,
    split_index,
    times,
    unbracketed,
)
from coding_framework.data.modules.kernels.lowering import block_function, declarations

SCANS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "cumsum": ("0.0f", lambda e: [f"a += {e};"]),
    "cumprod": ("1.0f", lambda e: [f"a *= {e};"]),
    "cummax": ("-INFINITY", lambda e: [f"a = fmaxf(a, {e});"]),
    "logcumsumexp": ("-INFINITY", lambda e: [
        f"float e = {e};", "a = fmaxf(a, e) + log1pf(expf(-fabsf(a - e)));",
    ]),
}  # fmt: skip
"""What is begun with, and the lines that take the next element."""


def _with_sizes(line: str, sizes: str) -> str:
    return line.replace(SIZES, sizes) if sizes else line.replace(f", {SIZES}", "")


class Cuda(Reductions, Products):
    """The file of a graph. Raises ValueError where the grammar drew what has no kernel here."""

    def source(self) -> str:
        """The whole file. Its first lines say which tensors there are and what each is of PyTorch's
        expressions, so that a reader need not look ahead; each kernel is handed all sizes."""
        last = self._made(self.graph.output)
        given = [*self.graph.inputs, *self.graph.parameters]
        declared = ", ".join(f"torch::Tensor {g.c_name}" for g in given)
        used = "\n".join((*self.device, *self.host))
        parts = {
            n: size.c
            for n, size in self.graph.sizes.items()
            if size.c and re.search(rf"\b{n}\b", used)
        }
        used = "\n".join((used, *parts.values()))
        whole = [n for n, size in self.graph.sizes.items() if not size.c]
        known: dict[str, str] = {}
        for g in given:
            for axis, dim in enumerate(g.dims):
                if dim.text in whole:
                    known.setdefault(dim.text, f"{g.c_name}.size({axis})")
        for g in given:  # what no axis is: told by a multiple of it
            for axis, dim in enumerate(g.dims):
                names, by = dim.terms[0] if len(dim.terms) == 1 else ((), Fraction(1))
                if len(names) == 1 and names[0] not in known and names[0] in whole:
                    more = f" / {by.numerator}" if by.numerator > 1 else ""
                    more = (f" * {by.denominator}" if by.denominator > 1 else "") + more
                    known[names[0]] = f"{g.c_name}.size({axis}){more}"
        for n in whole:
            if n not in known and re.search(rf"\b{n}\b", used):
                if n not in self.graph.told:
                    raise ValueError(f"nothing tells {n}")
                known[n] = self.graph.told[n]
        factors = [n for _, n in self.graph.numbers if re.search(rf"\b{n}\b", used)]
        if factors or any(n in known for n in self.graph.told):
            declared += "".join(f", {kind} {name}" for kind, name in self.graph.numbers)
        sizes = declarations({**known, **parts})
        taken = ", ".join([*(f"int {n}" for n in known), *(f"float {n}" for n in factors)])
        device = [_with_sizes(line, taken) for line in self.device]
        host = [_with_sizes(line, ", ".join([*known, *factors])) for line in self.host]
        helpers = [
            line
            for name in self.functions
            for line in (
                f"__device__ float {name}(float v) {{",
                f"  return {FUNCTIONS[name]};",
                "}",
                "",
            )
        ]
        for together, join in self.joins:
            helpers += block_function(join) if together == "block" else warp_function(join)
        return "\n".join(
            [
                "#include <torch/extension.h>",
                "",
                f"// {', '.join(f'{g.c_name} ({shape_of(g)})' for g in given)}",
                *self.plan,
                "",
                *helpers,
                *device,
                f"torch::Tensor forward({declared}) {{",
                *(f"  {line}" for line in (*sizes, *host, f"return {last};")),
                "}",
                "",
                'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
                "",
            ]
        )

    def _head(self, head: Node, node: Node, finish: Finish) -> None:
        """The kernel of a head, which ends with what makes the node of its value."""
        assert isinstance(head, Head)
        {
            "reduce": self._reduce,
            "row": self._row,
            "linear": self._product,
            "product": self._product,
            "convolution": self._convolution,
            "scan": self._scan,
            "pick": self._pick,
            "scatter": self._scatter,
        }[head.kind](head, node, finish)

    def _convolution(self, head: Head, node: Node, finish: Finish) -> None:
        """Of one to three spatial axes; groups: of one channel each where there are any."""
        self._prepare(head, node, 0)
        kernel = Kernel()
        self._open = kernel
        x, weight = head.args[:2]
        sides, pad = weight.dims[2:], int(head.numbers["pad"])
        stride, dilation = (int(head.numbers.get(name, 1)) for name in ("stride", "dilation"))
        apart = f" * {dilation}" if dilation > 1 else ""
        steps = f" * {stride}" if stride > 1 else ""
        before = f" - {pad}" if pad else ""
        depthwise = bool(head.numbers.get("depthwise"))
        channels, *lengths = x.dims[1:]
        taps = times(sides)
        self.terms.append(taps if depthwise else channels * taps)
        channel = "i1" if depthwise else "r"
        named = zip("pqu", ("row", "column", "layer"), strict=True)
        walked = list(zip(range(2, len(x.dims)), named, lengths, sides, strict=False))
        flat = channel if depthwise else f"(i1 * {channels.factor} + r)"
        for _, (tap, _), _, side in walked:
            if not side.is_one:
                flat = f"({flat} * {side.factor} + {tap})"
        there = [f"i{axis}" if side.is_one else name for axis, (_, name), _, side in walked]
        lines, value = self._looped(kernel, lambda: self._value(kernel, x, ["i0", channel, *there]))
        name = self._made(weight)
        kernel.reads[name] = "float"
        step = [*lines, f"v += {bracketed(value)} * {name}[{unbracketed(flat)}];"]
        for axis, (tap, here), length, side in reversed(walked):
            if not side.is_one:
                step = [
                    f"for (int {tap} = 0; {tap} < {side.text}; {tap}++) {{",
                    f"  int {here} = i{axis}{steps} + {tap}{apart}{before};",
                    f"  if ({here} < 0 || {here} >= {length.text}) continue;",
                    *(f"  {line}" for line in step),
                    "}",
                ]
        start = "0.0f"
        if len(head.args) > 2:
            kernel.reads[self._made(head.args[2])] = "float"
            start = f"{self._made(head.args[2])}[i1]"
        if not depthwise:
            step = [
                f"for (int r = 0; r < {channels.text}; r++) {{",
                *(f"  {line}" for line in step),
                "}",
            ]
        self._threads(kernel, head, node, [f"float v = {start};", *step], finish)

    def _scan(self, head: Head, node: Node, finish: Finish) -> None:
        """Running sums along an axis: one thread for each line."""
        self._prepare(head, node, LIGHT)
        kernel = Kernel()
        self._open = kernel
        (x,) = head.args
        (axis,) = head.axes
        start, next_of_a_scan = SCANS[head.name]
        self.terms.append(x.dims[axis])
        places = [f"i{a}" for a in range(len(x.dims))]
        places[axis] = "r"
        lines, value = self._looped(kernel, lambda: self._value(kernel, x, places))
        kernel.lines = []
        written = self._renamed(finish, "a", axis)
        inside = [
            *lines,
            *next_of_a_scan(unbracketed(value)),
            *kernel.lines,
            f"o[{linear(places, x.dims)}] = {unbracketed(written)};",
        ]
        others = [d for a, d in enumerate(x.dims) if a != axis]
        names = [f"i{a}" for a in range(len(x.dims)) if a != axis]
        where = [f"int {names[0]} = g;"] if len(names) == 1 else split_index("g", names, others)
        rows = elements_of(others)
        body = [
            "int g = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (g >= {rows}) return;",
            *where,
            f"float a = {start};",
            f"for (int r = 0; r < {x.dims[axis].text}; r++) {{",
            *(f"  {line}" for line in inside),
            "}",
        ]
        self._emit(kernel, node, body, f"({rows} + 255) / 256, 256")

    def _pick(self, head: Head, node: Node, finish: Finish) -> None:
        """The element of each row that an index names, or the row of a table."""
        self._prepare(head, node, LIGHT)
        kernel = Kernel()
        self._open = kernel
        x, index = head.args
        rank = len(head.dims)
        count = len(index.dims)
        places = [f"i{n}" for n in range(rank)]
        at = self._value(kernel, index, places[:count])
        chosen = kernel.index(f"(int){at}")
        row = places[: len(x.dims) - 1]
        where = {
            "of_row": [*row, chosen],
            "of_table": [chosen, *places[count:]],
            "of_axis": [*row[:count], chosen, places[-1]],
            "of_rows": [*places[: count - 1], chosen, *places[count:]],
        }[head.name]
        value = self._value(kernel, x, where)
        before = [*kernel.lines, f"float v = {unbracketed(value)};"]
        self._threads(kernel, head, node, before, finish)

    def _scatter(self, head: Head, node: Node, finish: Finish) -> None:
        """Rows added to those that an index names: to zeros, or to a tensor's own."""
        assert node is head
        self._prepare(head, node, LIGHT)
        index, rows, onto = head.args
        kernel = self._open = Kernel()
        places = [f"i{n}" for n in range(len(rows.dims))]
        at = self._value(kernel, index, places[:1])
        value = self._value(kernel, rows, places)
        count = elements_of(rows.dims)
        where = linear([f"(int){at}", *places[1:]], head.dims)
        body = [
            "int i = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (i >= {count}) return;",
            *coordinates(rows.dims),
            *kernel.lines,
            f"atomicAdd(o + {where}, {unbracketed(value)});",
        ]
        name = f"kernel{self.number + 1}"
        base = self._made(onto) if head.name == "onto" else ""
        out = self._planned(node)
        empty = self.host.pop()
        self.host.append(
            f"auto {out} = {base}.clone();" if base else empty.replace("empty", "zeros")
        )
        self._launch(name, kernel, body, f"({count} + 255) / 256, 256", out)

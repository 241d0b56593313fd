"""The kernels of a graph: one for each loop and for each tensor that several read, with what comes
before and after it where it is read and written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from coding_framework.data.graphs.expressions import (
    FUNCTIONS,
    LIGHT,
    Finish,
    Kernel,
    Together,
    Values,
)
from coding_framework.data.graphs.nodes import Given, Head, Node
from coding_framework.data.graphs.source import filled_python
from coding_framework.data.graphs.texts import (
    bracketed,
    coordinates,
    elements_of,
    linear,
    split_index,
    texts_of,
    times,
    unbracketed,
    used_lines,
)
from coding_framework.data.modules.kernels.lowering import (
    JOINS,
    Join,
    block_function,
    declarations,
)
from coding_framework.data.modules.pointwise import c_literal

STARTS: dict[str, tuple[str, Join]] = {
    "sum": ("0.0f", "sum"),
    "max": ("-INFINITY", "max"),
    "min": ("INFINITY", "min"),
}
SCANS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "cumsum": ("0.0f", lambda e: [f"a += {e};"]),
    "cumprod": ("1.0f", lambda e: [f"a *= {e};"]),
    "cummax": ("-INFINITY", lambda e: [f"a = fmaxf(a, {e});"]),
    "logcumsumexp": ("-INFINITY", lambda e: [
        f"float e = {e};", "a = fmaxf(a, e) + log1pf(expf(-fabsf(a - e)));",
    ]),
}  # fmt: skip
"""What is begun with, and the lines that take the next element."""
SHORT, WIDE, LONG = 32, 1024, 256
"""Of terms that lie one behind the other: so many are a warp's at least and at most, more a
block's. Of others a block adds up so many, where results are few and a thread would."""
MANY = 8192
"""Results that keep a GPU busy with one thread each."""
FEW, ENDLESS = 32, 16384
"""So few results of so many terms keep it busy when many blocks share the terms of each."""
TILED = 24
"""A product with so many rows, columns and terms is made in tiles."""


_SIZES = "<sizes>"
"""Where a kernel's parameters or arguments have all sizes."""


_LENGTH = re.compile(r"\{(\d)\}\.(?:size\((-?\d)\)|shape\[(-?\d)\])")
"""What the plan says by the name of the extent."""


def _with_sizes(line: str, sizes: str) -> str:
    return line.replace(_SIZES, sizes) if sizes else line.replace(f", {_SIZES}", "")


def _used(lines: list[str], last: str) -> list[str]:
    """The lines and the last one, without coordinates that nothing reads."""
    while True:
        text = "\n".join((*lines, last))
        kept = [
            line
            for line in lines
            if not (named := re.match(r"int (\w+) = ", line))
            or len(re.findall(rf"\b{named[1]}\b", text)) > 1
        ]
        if len(kept) == len(lines):
            return [*lines, last]
        lines = kept


def _warp_function(join: Join) -> list[str]:
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
class _Workers:
    """Who makes a result: a thread (None), or the threads of a warp or a block, which take turns at
    its terms."""

    together: Together | None

    @classmethod
    def of(cls, terms: int, results: int, *, in_line: bool) -> _Workers:
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


def _shape(node: Node) -> str:
    return ", ".join(texts_of(node.dims))


class Cuda(Values):
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
            helpers += block_function(join) if together == "block" else _warp_function(join)
        return "\n".join(
            [
                "#include <torch/extension.h>",
                "",
                f"// {', '.join(f'{g.c_name} ({_shape(g)})' for g in given)}",
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

    # --- what becomes a kernel ---

    def _made(self, node: Node) -> str:
        """The name of the tensor in memory that holds it; it is made where it is not there."""
        if isinstance(node, Given):
            return node.c_name
        if id(node) not in self.done:
            if isinstance(node, Head):
                self._head(node, node, lambda v: v)
            else:
                self._finished(node)
        return self.done[id(node)]

    def _finished(self, node: Node) -> None:
        """A node that is no head: at the end of the last head that it reads, or by itself."""
        while heads := self._heads(node):
            last = heads[-1]
            if len(heads) == 1 and self._ends(node, last):
                kernel_v = self._after(node, last)
                self._head(last, node, kernel_v)
                return
            self._made(heads[0])
        kernel = self._open = Kernel()
        places = [f"i{a}" for a in range(len(node.dims))]
        self._threads(kernel, node, node, [], lambda _: self._value(kernel, node, places))

    # --- kernels ---------------------------------------------------------------------------------

    def _ready(self, node: Node, most: int) -> None:
        """What an expression of it needs is made; it is itself where it is heavier than `most`."""
        if isinstance(node, Given) or id(node) in self.done:
            return
        if isinstance(node, Head) or self._weight(node) > most:
            self._made(node)
            return
        for head in self._heads(node):
            self._made(head)

    def _out(self, node: Node) -> str:
        """The name of a new tensor."""
        self.number += 1
        name = f"t{self.number}"
        shape = _shape(node)
        given = self.graph.inputs
        first = next((g for g in given if g.dtype == "float32"), None)
        like = (
            f"{first.c_name}.options()"
            if first is not None
            else f"{given[0].c_name}.options().dtype(torch::kFloat32)"
        )
        self.host.append(f"auto {name} = torch::empty({{{shape}}}, {like});")
        self.done[id(node)] = name
        return name

    def _emit(self, kernel: Kernel, node: Node, body: list[str], grid: str) -> None:
        """The kernel that makes a node, and its launch. It writes `o`."""
        name = f"kernel{self.number + 1}"
        self._launch(name, kernel, body, grid, self._planned(node))

    def _planned(self, node: Node) -> str:
        """The name of a new tensor, which the plan tells."""
        said = self._said(node)
        out = self._out(node)
        self.plan.append(f"// {out} ({_shape(node)}) = {said}")
        return out

    def _launch(
        self, name: str, kernel: Kernel, body: list[str], grid: str, out: str, *more: str
    ) -> None:
        """A kernel of that name, and its launch. It writes `o`, which is `out`. more: whole numbers
        of the host that it is given."""
        body = used_lines(body)
        text = "\n".join((*body, grid))
        reads = {n: c for n, c in kernel.reads.items() if re.search(rf"(?<![.\w]){n}\b", text)}
        parts = [s for s, size in self.graph.sizes.items()
                 if size.c and re.search(rf"\b{s}\b", "\n".join(body))]  # fmt: skip
        parts += more
        declared = [f"const {c}* {n}" for n, c in reads.items()]
        declared += ["float* o", _SIZES, *(f"int {s}" for s in parts)]
        self.device += [
            f"__global__ void {name}({', '.join(declared)}) {{",
            *(f"  {line}" for line in body),
            "}",
            "",
        ]
        given = [f"{n}.data_ptr<{c}>()" for n, c in reads.items()]
        given += [f"{out}.data_ptr<float>()", _SIZES, *parts]
        self.host.append(f"{name}<<<{grid}>>>({', '.join(given)});")

    def _said(self, node: Node) -> str:
        """PyTorch's expression of it, of the tensors that are in memory."""
        if isinstance(node, Given):
            return node.c_name
        if id(node) in self.done:
            return self.done[id(node)]
        texts = [self._said(a) for a in node.args]

        def constant(name: str) -> str:
            return repr(self.graph.constants[name])

        def extent(match: re.Match[str]) -> str:
            text = node.args[int(match[1])].dims[int(match[2] or match[3])].text
            return bracketed(text.replace(" / ", " // "))

        parts, number = node.part or (None, 0)
        template = parts.python if parts is not None else node.plan or node.python
        said = filled_python(_LENGTH.sub(extent, template), texts, constant)
        return said if parts is None else f"{said}[{number}]"

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

    def _prepare(self, head: Head, node: Node, most: int) -> None:
        """Its arguments, and what is read beside it at its end."""
        for a in head.args:
            self._ready(a, most)
        kept = self.done.get(id(head))
        self.done[id(head)] = "="
        if node is not head:
            for other in self._heads(node):
                self._made(other)
        if kept is None:
            del self.done[id(head)]

    def _looped(self, kernel: Kernel, value: Callable[[], str]) -> tuple[list[str], str]:
        """The lines inside a loop, and the value."""
        before, kernel.lines = kernel.lines, []
        text = value()
        inside, kernel.lines = kernel.lines, before
        return inside, text

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

    def _workers(self, terms: int, results: int, *joins: Join, in_line: bool) -> _Workers:
        """With the functions by which they add up."""
        found = _Workers.of(terms, results, in_line=in_line)
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
            return _used([*place.split("\n"), *more, *lines], f"{name} = {said};")

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
        ends = _used(
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

    def _threads(
        self, kernel: Kernel, head: Node, node: Node, body: list[str], finish: Finish
    ) -> None:
        """One thread for each value `v` of a head, or for each place."""
        kernel.lines = []
        text = finish("v")
        body = [*body, *kernel.lines, f"o[i] = {unbracketed(text)};"]
        count = elements_of(head.dims)
        body = [
            "int i = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (i >= {count}) return;",
            *coordinates(head.dims),
            *body,
        ]
        self._emit(kernel, node, body, f"({count} + 255) / 256, 256")

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

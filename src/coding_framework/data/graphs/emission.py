"""How a graph's tensors come to memory: kernels, their launches and the plan that tells of them.
What a kernel of each kind has inside is `reductions`, `products` and `cuda`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from coding_framework.data.graphs.expressions import Finish, Kernel, Values
from coding_framework.data.graphs.nodes import Each, Given, Head, Node
from coding_framework.data.graphs.source import filled_python
from coding_framework.data.graphs.texts import (
    bracketed,
    coordinates,
    elements_of,
    texts_of,
    unbracketed,
    used_lines,
)
from coding_framework.data.modules.kernels.lowering import C_TYPES

SIZES = "<sizes>"
"""Where a kernel's parameters or arguments have all sizes."""
_LENGTH = re.compile(r"\{(\d)\}\.(?:size\((-?\d)\)|shape\[(-?\d)\])")
"""What the plan says by the name of the extent."""


def shape_of(node: Node) -> str:
    return ", ".join(texts_of(node.dims))


class Emission(Values):
    """What every kernel is written with."""

    def _head(self, head: Node, node: Node, finish: Finish) -> None:
        """The kernel of a head, which ends with what makes the node of its value."""
        raise NotImplementedError

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
        shape = shape_of(node)
        given = self.graph.inputs
        first = next((g for g in given if g.dtype == "float32"), None)
        like = (
            f"{first.c_name}.options()"
            if first is not None
            else f"{given[0].c_name}.options().dtype(torch::kFloat32)"
        )
        kind = node.dtype if isinstance(node, Each) else "float32"
        if kind != "float32":
            scalar = {"int64": "torch::kLong", "bool": "torch::kBool"}[kind]
            like = f"{given[0].c_name}.options().dtype({scalar})"
            self.kinds[name] = C_TYPES[kind]
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
        self.plan.append(f"// {out} ({shape_of(node)}) = {said}")
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
        kind = self.kinds.get(out, "float")
        declared += [f"{kind}* o", SIZES, *(f"int {s}" for s in parts)]
        self.device += [
            f"__global__ void {name}({', '.join(declared)}) {{",
            *(f"  {line}" for line in body),
            "}",
            "",
        ]
        given = [f"{n}.data_ptr<{c}>()" for n, c in reads.items()]
        given += [f"{out}.data_ptr<{kind}>()", SIZES, *parts]
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

"""A graph as kernels, the simplest that are right: one for each operation that loops, with the
elementwise operations before it written where it reads and those behind it where it writes.

What computes nothing (views, slices, concatenations, masks) is never made: it is read through. A
tensor is put in memory where an output is asked for, where several kernels read what is costly, or
where a loop would make it again at each step.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from coding_framework.data.cuda import cuda_text
from coding_framework.data.graph import Extent, Graph, Node
from coding_framework.data.lower.sizes import Sizes
from coding_framework.data.lower.text import (
    C_TYPES,
    FLOATS,
    HALVES,
    Body,
    Places,
    atom,
    broadcast,
    flat,
    literal,
    plus,
    times,
    without_unused,
)
from coding_framework.data.lower.workers import BLOCK, THREAD, THREADS, Worker
from coding_framework.data.ops import contractions
from coding_framework.data.ops.elementwise import (
    CONDITIONS,
    ELEMENTWISE,
    expression_of,
    is_value,
)
from coding_framework.data.ops.heads import (
    ALSO_CALLED,
    LOOPS,
    ROWS,
    SCANS,
    Contraction,
    Layout,
    Pass,
    Row,
    over_axes,
    quotient,
    walks_of,
)
from coding_framework.data.ops.scans import Scan
from coding_framework.data.ops.views import (
    PARTS,
    READERS,
    RESHAPES,
    VIEWS,
    axis_of,
    number,
)
from coding_framework.data.ops.wholes import WHOLES
from coding_framework.errors import UnreadableError

COSTLY = 4
"""What an operation costs that is no plain instruction, a plain one costs 1."""
MOST_SHARED = 6
"""The cost up to which a tensor that several kernels read is made in each of them."""
MOST_IN_A_LOOP = 3
"""The cost up to which a tensor is made again at each step of a loop."""
MOST_TOGETHER = 60
"""The cost up to which one kernel computes what no other reads."""
MANY = 80
"""Operations from which a module's text is kept short: a kernel file has an end."""
MANY_TENSORS = 12
"""Tensors of the host code above which they share memory."""
LONG_ROW = 256
"""Elements, at the first shape set, from which a row is a block's."""
RANDOM = ("rand", "randn", "rand_like", "randn_like", "randint", "bernoulli", "multinomial",
          "normal", "uniform", "exponential", "randperm")  # fmt: skip


def lower(graph: Graph) -> str:
    """The kernel file of a graph. Raises UnreadableError, which names an operation that has no
    kernel and its line."""
    return Lowering(graph).source()


def lacking(node: Node, why: str = "") -> UnreadableError:
    where = f" ({node.line})" if node.line else ""
    return UnreadableError(f"there is no kernel for {node.op}{why}{where}")


Value = Callable[[Body, Places], str]
"""(body, places) -> the element there."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A contiguous tensor. name: of its pointer in kernels."""

    name: str
    shape: tuple[Extent, ...]
    dtype: str


@dataclass(eq=False)
class Group:
    """A head, and what is computed of its results where they are."""

    number: int
    head: Node
    members: list[Node] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True, eq=False)
class Launch:
    """The launch of a kernel that is not written yet."""

    wish: str
    """What the kernel may be called."""
    lines: Sequence[str]
    own: frozenset[str]
    """Names that mean something in these lines alone."""
    parameters: Sequence[tuple[str, str]]
    """(C type, name) of each."""
    given: Sequence[str]
    grid: str
    """Its blocks and threads."""
    shared_bytes: int

    def pieces(self, apart: bool) -> list[str]:
        """Its lines as text, number, text, ...; apart: as text alone."""
        text = "\n".join(self.lines)
        return [text] if apart else _NUMBER.split(text)

    def key(self, apart: bool) -> str:
        """The same for launches of one kernel. apart: numbers tell kernels apart."""
        places: dict[str, str] = {}

        def place(match: re.Match[str]) -> str:
            word = match[0]
            return places.setdefault(word, f"@{len(places)}") if word in self.own else word

        parameters = (f"{kind} {name}" for kind, name in self.parameters)
        said = "\n".join((*parameters, "#".join(self.pieces(apart)[::2])))
        return re.sub(r"(?<![.\w])[A-Za-z_]\w*", place, said)


_NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.]|\]\[|\];|[^()\n;]*>\()")
"""A whole number that may be an argument: none of an array's declaration or a template."""


class Lowering:
    """The kernels and the host code of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sizes = Sizes(graph)
        self.kernels: list[str] = []
        self.host: list[str] = []
        self.memory: dict[Node, Memory] = {
            a: Memory(a.name, a.type.shape, a.type.dtype) for a in graph.arguments
        }
        self.constants: dict[str, str] = {}
        """Declarations without their names -> their names."""
        self.allocated: dict[str, tuple[Extent, ...]] = {}
        """Shapes of the tensors that are made, by their names."""
        self.readers = Counter(i for node in graph.nodes for i in set(node.inputs))
        self.readers.update(graph.outputs)
        self.group_of: dict[Node, Group] = {}
        self.groups: list[Group] = []
        self.latest: dict[Node, int] = {}
        """The last group that a node depends on."""
        self.cost: dict[Node, int] = {}
        cats = [node for node in graph.nodes if node.base == "cat"]
        self.kept_whole: set[Node] = {one for node in cats for one in node["tensors"][:1]} & {*cats}
        """Nodes that get a place in memory of their own; of a chain of concatenations each."""
        self.launches: list[Launch] = []

    # --- the whole file ---

    def source(self) -> str:
        self._constants()
        self._plan()
        for group in self.groups:
            if any(self.readers[m] for m in (group.head, *group.members)):
                self._emit_group(group)
        returned = [self._returned(node) for node in self.graph.outputs]
        return self._file(returned)

    def _constants(self) -> None:
        for node in self.graph.nodes:
            for one in node.inputs:
                if one.op == "constant" and one not in self.memory:
                    self._constant(one)

    def _constant(self, node: Node) -> None:
        values = self.graph.constants[node.name]
        kind = C_TYPES[node.type.dtype].kept
        said = ", ".join(literal(v, node.type.dtype) for v in values)
        name = self.constants.setdefault(f"{kind} {{}}[] = {{{{{said}}}}};", node.name)
        self.memory[node] = Memory(name, node.type.shape, node.type.dtype)

    def _returned(self, node: Node) -> str:
        memory = self.stored(node)
        if memory.name not in self.allocated:  # a view of an argument
            self._map(node, copy=True)
            return f"{node.name}_copy"
        return self._in_shape(memory, self.allocated[memory.name])

    def tensor(self, node: Node) -> str:
        """A tensor of the host code that is a node."""
        memory = self.stored(node)
        shapes = {a.name: a.type.shape for a in self.graph.arguments} | self.allocated
        if memory.name not in shapes:  # a constant
            return self._returned(node)
        return self._in_shape(memory, shapes[memory.name])

    def _in_shape(self, memory: Memory, own: Sequence[Extent]) -> str:
        if tuple(own) == tuple(memory.shape):
            return memory.name
        dims = ", ".join(self.sizes.name(d) for d in memory.shape)
        return f"{memory.name}.view({{{dims}}})"

    def _file(self, returned: Sequence[str]) -> str:
        self._launched()
        arguments = [f"torch::Tensor {a.name}" for a in self.graph.arguments]
        text = "\n".join((*self.kernels, *self.host, *self.sizes.said.values(), *returned))
        scalars = {name for name, _ in self.graph.scalars}
        if any(s.name in scalars and re.search(rf"\b{s.name}\b", text) for s in self.graph.symbols):
            kinds = {"int": "int64_t", "float": "double", "bool": "bool"}
            arguments += [f"{kinds[kind]} {name}" for name, kind in self.graph.scalars]
        several = len(returned) > 1
        kind = "std::vector<torch::Tensor>" if several else "torch::Tensor"
        result = f"{{{', '.join(returned)}}}" if several else returned[0]
        host = [*self._declared_sizes((*self.kernels, *self.host, *returned)), *self.host]
        if len(self.allocated) > MANY_TENSORS:
            host = _reused(host, result)
        if len(self.graph.nodes) > MANY:
            host = _launchers(host)
        return "\n".join(
            [
                "#include <torch/extension.h>",
                "",
                *(f"__device__ const {said.format(n)}" for said, n in self.constants.items()),
                *self.kernels,
                "static int blocks(int64_t threads) {",
                '  TORCH_CHECK(threads < (1LL << 31), "a tensor is too large for this kernel");',
                f"  return threads > 0 ? (threads + {THREADS - 1}) / {THREADS} : 1;",
                "}",
                "",
                f"{kind} forward({', '.join(arguments)}) {{",
                *(f"  {line}" for line in host),
                f"  return {result};",
                "}",
                "",
                'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
                "",
            ]
        )

    def _declared_sizes(self, texts: Iterable[str]) -> list[str]:
        """The sizes that are used, and what they are made of."""
        words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(texts)))
        for name in reversed(list(self.sizes.said)):
            if name in words:
                words.update(re.findall(r"[A-Za-z_]\w*", self.sizes.said[name]))
        return [
            f"const {self.sizes.types[name]} {name} = {said};"
            for name, said in self.sizes.said.items()
            if name in words and name != said
        ]

    # --- what is computed where ---

    def _plan(self) -> None:
        """Which nodes are computed where the results of a head are."""
        for a in self.graph.arguments:
            self.latest[a], self.cost[a] = -1, 1
        for node in self.graph.nodes:
            inputs = list(node.inputs)
            for one in inputs:
                if one.op == "constant":
                    self.latest[one], self.cost[one] = -1, 1
            latest = max((self.latest[i] for i in inputs), default=-1)
            self.cost[node] = 1
            if self._is_head(node):
                group = Group(len(self.groups), node)
                self.groups.append(group)
                self.group_of[node] = group
                latest = group.number
            elif node.op == "getitem" and node["self"] in self.group_of:
                group = self.group_of[node] = self.group_of[node["self"]]
                group.members.append(node)
            else:
                self._require(node)
                self.cost[node] = self._cost_of(node, inputs)
                joined = self._joins(node, inputs, latest)
                if joined is not None:
                    self.group_of[node] = joined
                    joined.members.append(node)
                    self.cost[node] = 1
                elif node.base in PARTS:
                    pass
                elif self.cost[node] > MOST_TOGETHER or (
                    self.readers[node] > 1 and self.cost[node] > MOST_SHARED
                ):
                    self.cost[node] = 1
                    self.kept_whole.add(node)
            self.latest[node] = latest

    @staticmethod
    def _is_head(node: Node) -> bool:
        base = ALSO_CALLED.get(node.base, node.base)
        return base in ROWS or base in LOOPS or base in SCANS or base in WHOLES

    def _require(self, node: Node) -> None:
        known: tuple[Any, ...] = (ELEMENTWISE, VIEWS, READERS, RESHAPES, PARTS, ("getitem",))
        if node.base in RANDOM or (
            node.base in ("dropout", "native_dropout") and node.get("train") and node.get("p")
        ):
            raise UnreadableError(
                f"{node.op} draws random numbers, and no kernel can give its output "
                f"({node.line}): switch dropout off (.eval() in __init__, or p=0), or take the "
                "numbers as an input"
            )
        if not any(node.base in table for table in known):
            raise lacking(node)
        for type_ in node.types:
            if type_.dtype not in C_TYPES and type_.dtype != "none":
                raise lacking(node, f" of {type_.dtype}")

    def _cost_of(self, node: Node, inputs: Sequence[Node]) -> int:
        views: tuple[Any, ...] = (RESHAPES, VIEWS, PARTS, ("getitem",))
        if any(node.base in table for table in views):
            return max((self.cost[i] for i in inputs), default=1)
        row = ELEMENTWISE.get(node.base)
        own = COSTLY if row is not None and row.costly else 1
        return own + sum(self.cost[i] for i in inputs if i not in self.kept_whole)

    def _joins(self, node: Node, inputs: Sequence[Node], latest: int) -> Group | None:
        """The group at whose results it can be computed: the last that it depends on, read at
        equal places alone."""
        if latest < 0:
            return None
        group = self.groups[latest]
        if group.head.base in WHOLES:
            return None
        own = [i for i in inputs if self.group_of.get(i) is group]
        if not own or any(self._depends(i, group) for i in inputs if i not in own):
            return None
        if node.base in RESHAPES or node.base in ("permute", "transpose"):
            return group
        if node.base not in ELEMENTWISE:
            return None
        domains = {self._domain(i) for i in own}
        same = all(i.type.shape == node.type.shape for i in own)
        return group if same and len(domains) == 1 and None not in domains else None

    def _depends(self, node: Node, group: Group) -> bool:
        return self.latest[node] == group.number

    def _domain(self, node: Node) -> Node | None:
        """The node whose places it is computed at: the head, or a view of what it gives."""
        group = self.group_of[node]
        if node is group.head:
            return node if len(node.types) == 1 else None
        if node.op == "getitem":
            first = node["self"].types[node["number"]].shape
            return node["self"] if first == node["self"].types[0].shape else node
        if node.base in ELEMENTWISE:
            own = next(i for i in node.inputs if self.group_of.get(i) is group)
            return self._domain(own)
        return node

    # --- memory ---

    def stored(self, node: Node) -> Memory:
        """The tensor in memory; it is made where it is not there."""
        if node in self.memory:
            return self.memory[node]
        if node.base in RESHAPES and node not in self.kept_whole:
            of = self.stored(node["self"])
            made = Memory(of.name, node.type.shape, of.dtype)
            self.memory[node] = made
            return made
        if node in self.group_of and not self.group_of[node].done:
            self._emit_group(self.group_of[node])
            if node in self.memory:
                return self.memory[node]
        self._map(node)
        return self.memory[node]

    def ready(self, node: Node, most: int = MOST_TOGETHER) -> None:
        """Have in memory what an expression of it reads; itself where it costs more than `most`."""
        if node in self.memory or node.op == "constant":
            return
        if node.base in PARTS:
            self.ready(node["self"], most)
            return
        if node in self.kept_whole or node in self.group_of or self.cost[node] > most:
            if node in self.group_of and node.base in VIEWS:
                self.ready(node["self"], most)  # it is read through where others read it
                return
            self.stored(node)
            return
        for one in node.inputs:
            self.ready(one, most)

    @staticmethod
    def _allocation(node: Node) -> Memory:
        return Memory(node.name, node.type.shape, node.type.dtype)

    def allocate(self, node: Node, name: str = "") -> Memory:
        made = self.allocated_as(name or node.name, node.type.shape, node.type.dtype)
        if made.name == node.name:
            self.memory[node] = made
        return made

    def allocated_as(self, name: str, shape: Sequence[Extent], dtype: str) -> Memory:
        """A tensor of the host code."""
        dims = ", ".join(self.sizes.name(d, name) for d in shape)
        options = f"{self.graph.arguments[0].name}.options().dtype({C_TYPES[dtype].torch})"
        self.host.append(f"auto {name} = torch::empty({{{dims}}}, {options});")
        self.allocated[name] = tuple(shape)
        return Memory(name, tuple(shape), dtype)

    def copied(self, node: Node, source: Node) -> Memory:
        """The node's memory, with the elements of a source in it, to be written to."""
        self.ready(source)
        body = self.body()
        dims = body.dims(node.type.shape)
        places = body.split("i", dims, "i")
        body.index = (tuple(places), dims, "i")
        body.line(f"out[i] = {self.read(source, body, places)};")
        memory = self.allocate(node)
        self.launch(f"{node.name}_copy", body, [("out", memory)], node.type.shape)
        return memory

    def results_of(self, node: Node) -> dict[int, Node]:
        """The nodes of a node's several results that somebody reads."""
        members = self.group_of[node].members
        return {m["number"]: m for m in members if m.op == "getitem" and self.readers[m]}

    def keep(self, node: Node, name: str) -> None:
        """A tensor of the host code is the node's."""
        self.memory[node] = Memory(name, node.type.shape, node.type.dtype)
        self.allocated[name] = node.type.shape

    def file(self, name: str, **holes: str) -> None:
        """Take the kernels of a file of `data/cuda`, its holes filled, once."""
        text = cuda_text(name)
        for hole, filling in holes.items():
            text = re.sub(rf"\b{hole}\b", filling, text)
        if text not in self.kernels:
            self.kernels.append(text)

    # --- kernels ---

    def body(self) -> Body:
        body = Body(self.sizes.name)
        taken = [a.name for a in self.graph.arguments] + [n.name for n in self.graph.nodes]
        body.reserve((*taken, *self.sizes.said))
        return body

    def launch(
        self, wish: str, body: Body, writes: Sequence[tuple[str, Memory]], count: Sequence[Extent],
        worker: Worker = THREAD,
    ) -> None:  # fmt: skip
        """A kernel of one worker for each place `i` of `count`, and its launch. writes:
        (parameter, tensor)."""
        total = self.total(count)
        lines = without_unused([*worker.opening(total), *body.lines])
        words = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
        parameters: list[tuple[str, str]] = []
        given: list[str] = []
        for read, kind in body.reads.items():
            if read in words and read not in self.constants.values():
                parameters.append((f"const {kind}*", read))
                given.append(f"{read}.data_ptr<{kind}>()")
        for parameter, memory in writes:
            kind = C_TYPES[memory.dtype].kept
            parameters.append((f"{kind}*", parameter))
            given.append(f"{memory.name}.data_ptr<{kind}>()")
        for size in sorted(words & self.sizes.types.keys(), key="\n".join(lines).find):
            parameters.append((self.sizes.types[size], size))
            given.append(size)
        wide = f"(int64_t){total}" if "*" in total else total
        own = frozenset((*body.declared, *(name for _, name in parameters)))
        made = Launch(wish, lines, own, parameters, given, worker.launch(wide), worker.shared_bytes)
        self.launches.append(made)
        self.host.append(f"@{len(self.launches) - 1}")

    def total(self, shape: Sequence[Extent]) -> str:
        """The elements of a shape, in C."""
        dims = [self.sizes.name(d) for d in shape]
        return " * ".join(d for d in dims if d != "1") or "1"

    def _launched(self) -> None:
        """The kernels of all launches, and the launches in the host code. Launches that differ in
        names alone are of one kernel, and in a long text those that differ in numbers too."""
        apart = len(self.graph.nodes) <= MANY
        alike: dict[str, list[Launch]] = {}
        for one in self.launches:
            alike.setdefault(one.key(apart), []).append(one)
        names: Counter[str] = Counter()
        said: dict[Launch, list[str]] = {}
        for together in alike.values():
            first = together[0]
            names[first.wish] += 1
            number = names[first.wish]
            name = f"{first.wish}_kernel" if number == 1 else f"{first.wish}_{number}_kernel"
            columns = list(zip(*(one.pieces(apart)[1::2] for one in together), strict=True))
            differ = list(dict.fromkeys(c for c in columns if len(set(c)) > 1))
            words = [f"num{differ.index(c)}" if c in differ else c[0] for c in columns]
            pieces = zip_longest(first.pieces(apart)[::2], words, fillvalue="")
            body = "".join(chain.from_iterable(pieces))
            parameters = [*first.parameters, *(("int", f"num{n}") for n in range(len(differ)))]
            taken = ", ".join(f"{kind} {parameter}" for kind, parameter in parameters)
            text = [f"__global__ void {name}({taken}) {{", textwrap.indent(body, "  "), "}"]
            self.kernels.append("\n".join((*text, "")))
            for k, one in enumerate(together):
                given = ", ".join((*one.given, *(c[k] for c in differ)))
                shared = f", {one.shared_bytes}" if one.shared_bytes else ""
                said[one] = [f"{name}<<<{one.grid}{shared}>>>({given});"]
            if first.shared_bytes:
                size = "cudaFuncAttributeMaxDynamicSharedMemorySize"
                said[first].insert(
                    0, f"cudaFuncSetAttribute({name}, {size}, {first.shared_bytes});"
                )
        host = [said[self.launches[int(h[1:])]] if h[0] == "@" else [h] for h in self.host]
        self.host = [line for lines in host for line in lines]

    def _map(self, node: Node, copy: bool = False) -> None:
        """A kernel that makes each element of a tensor by itself."""
        if not copy:
            for one in node.inputs:
                self.ready(one)
        made = self.read if copy else self._made
        self.each_element(
            node, lambda body, places: made(node, body, places), f"{node.name}_copy" * copy
        )

    def each_element(self, node: Node, value: Value, name: str) -> None:
        """A kernel of one thread an element. name: of the tensor, where it is not the node's."""
        body = self.body()
        dims = body.dims(node.type.shape)
        places = body.split("i", dims, "i")
        body.index = (tuple(places), dims, "i")
        body.line(f"out[i] = {value(body, places)};")
        memory = self.allocate(node, name)
        self.launch(memory.name, body, [("out", memory)], node.type.shape)

    def _emit_group(self, group: Group) -> None:
        if group.done:
            return
        group.done = True
        head = group.head
        base = ALSO_CALLED.get(head.base, head.base)
        if base in WHOLES:
            WHOLES[base](self, head)
            return
        most = MOST_TOGETHER
        if base in LOOPS:
            operands = {id(n) for name in LOOPS[base].operands for n in listed(head[name])}
        else:
            operands, most = set(), MOST_TOGETHER // walks_of(head)
        for one in head.inputs:
            self.ready(one, MOST_IN_A_LOOP if id(one) in operands else most)
        for member in group.members:
            for one in member.inputs:
                if self.group_of.get(one) is not group:
                    self.ready(one)
        if base in LOOPS:
            self.loop_kernel(group)
        elif base in SCANS:
            self.scan_kernel(group)
        else:
            self.row_kernel(group, ROWS[base])

    def loop_kernel(self, group: Group) -> None:
        """One thread for each output; for several that share an operand of a contraction."""
        head = group.head
        loop = LOOPS[head.base]
        if isinstance(loop, Contraction):
            self._contraction(group, loop)
            return
        body = self.body()
        dims = body.dims(head.type.shape)
        places = body.split("i", dims, "i")
        body.index = (tuple(places), dims, "i")
        values = loop.values(self, head, body, places)
        writes = self.finish(group, body, places, dict(enumerate(values)))
        self.launch(self.kernel_name(group), body, writes, head.type.shape)

    def _contraction(self, group: Group, loop: Contraction) -> None:
        head = group.head
        body = self.body()
        count = list(head.type.shape)
        axis = contractions.shared_axis(head)
        if axis is not None and self.worth((count[axis],)) < 2 * contractions.TOGETHER:
            axis = None
        if axis is not None:
            count[axis] = quotient(count[axis] + contractions.TOGETHER - 1, contractions.TOGETHER)
        dims = body.dims(count)
        places = body.split("i", dims, "i")
        if axis is None:
            body.index = (tuple(places), dims, "i")
        else:
            first = times(places[axis], str(contractions.TOGETHER))
            places[axis] = body.let("int", "first", first)
        sums = contractions.Sums(self, head, body, places, axis)
        value = loop.sums(sums)
        with sums.each(inside=True) as (there, total):
            writes = self.finish(group, body, there, {0: value(there, total)})
        self.launch(self.kernel_name(group), body, writes, count)

    def worker(self, head: Node, row: Row, layout: Layout) -> Worker:
        """Who walks over the rows: a block over long ones, whose parts are joined: a sum of many
        terms by one thread would lose what is small."""
        return BLOCK if self.worth(layout.inner) >= LONG_ROW else THREAD

    def row_kernel(self, group: Group, row: Row) -> None:
        """One worker for each row."""
        head = group.head
        layout = row.layout(head)
        worker = self.worker(head, row, layout)
        dtype = head.type.dtype
        kind = C_TYPES[dtype].computed
        total = self.total(layout.rows)
        body = self.body()
        places = body.split("i", body.dims(layout.rows), "i")
        known = self.known_of_row(head)
        count = self.total(layout.inner)
        known["n"] = body.let(kind, "n", count)
        worker.prepare(body, kind)
        end = worker.end(body, count, total)

        @contextmanager
        def elements() -> Iterator[tuple[list[str], str]]:
            """A loop over the elements of the row: the place of each, and its value."""
            inner = body.dims(layout.inner)
            with ExitStack() as stack:
                if worker.alone:
                    at = stack.enter_context(contractions.nest(body, [("r", d) for d in inner]))
                else:
                    r = stack.enter_context(body.loop("r", end, worker.start, worker.step))
                    at = body.split(r, inner, "r")
                there = layout.place(body, places, at)
                text = self.read(head[row.of], body, there)
                yield there, body.named(kind, "x", cast(text, head[row.of].type.dtype, dtype))

        for one in row.passes(head):
            name = known[one.name] = body.variable(kind, one.name, start_of(one, dtype))
            with elements() as (_, x):
                body.line(f"{name} = {typed(one.step, dtype).format(x=x, **known)};")
            worker.join(body, name, kind, typed(one.join, dtype), known["f"])
            if one.end:
                body.line(f"{name} = {typed(one.end, dtype).format(**known)};")
        if row.element is None:
            body.index = (tuple(places), body.dims(layout.rows), "i")
            value = typed(row.result, dtype).format(**known)
            if leaves := worker.leaves(total):
                body.line(f"if ({leaves}) return;")
            writes = self.finish(group, body, places, {0: value})
        else:
            with elements() as (there, x):
                template = row.element(self, head, body, there)
                value = template.format(x=x, **known)
                writes = self.finish(group, body, there, {0: value})
        self.launch(self.kernel_name(group), body, writes, layout.rows, worker)

    @staticmethod
    def known_of_row(head: Node) -> dict[str, str]:
        """What the templates of a row name besides what its passes find."""
        dtype = head.type.dtype
        known = {"f": C_TYPES[dtype].suffix}
        if isinstance(head.get("eps"), float):
            known["eps"] = literal(head["eps"], dtype)
        elif head.base == "rms_norm":
            known["eps"] = {"float16": "0.0009765625f", "bfloat16": "0.0078125f"}.get(
                dtype, "1.1920928955078125e-07f"
            )
        return known

    def worth(self, shape: Sequence[Extent]) -> float:
        """The elements of a shape at the first shape set."""
        total = 1.0
        for size in shape:
            total *= self.sizes.worth(size)
        return total

    def scan_kernel(self, group: Group) -> None:
        """One thread for each line along the axis."""
        head = group.head
        scan = SCANS[head.base]
        dtype = head.type.dtype
        kind = C_TYPES[dtype].computed
        layout = over_axes((axis_of(head),), head["self"].type.shape, keepdim=True)
        body = self.body()
        places = body.split("i", body.dims(layout.rows), "i")
        a = body.variable(kind, "running", start_of(scan, dtype))
        where = body.variable("int64_t", "where", "0") if scan.arg else ""
        with body.loop("r", body.dims(layout.inner)[0]) as at:
            there = layout.place(body, places, [at])
            text = cast(self.read(head["self"], body, there), head["self"].type.dtype, dtype)
            x = body.let(kind, "x", text)
            step = typed(scan.step, dtype).format(a=a, x=x, f=C_TYPES[dtype].suffix)
            if scan.arg:
                with body.block(f"if ({step})"):
                    body.line(f"{a} = {x};")
                    body.line(f"{where} = {at};")
            else:
                body.line(f"{a} = {step};")
            results = {0: a, 1: where} if scan.arg else {0: a}
            writes = self.finish(group, body, there, results)
        self.launch(self.kernel_name(group), body, writes, layout.rows)

    def kernel_name(self, group: Group) -> str:
        """The operations of a kernel in their order."""
        names = [group.head.base.strip("_")]
        names += [m.base.strip("_") for m in group.members if m.base in ELEMENTWISE]
        return "_".join(dict.fromkeys(names[:4]))

    def finish(
        self, group: Group, body: Body, places: Places, results: Mapping[int, str]
    ) -> list[tuple[str, Memory]]:
        """Compute the members of a group at the places of its head, and write what others read."""
        head = group.head
        at: dict[Node, tuple[list[str], str | None]] = {}
        index = body.index[2] if body.index is not None else None
        several = len(head.types) > 1
        if not several:
            at[head] = (list(places), index)
            self._known(body, head, places, results[0])
        for member in group.members:
            if member.op == "getitem" and member["self"] is head:
                if member["number"] not in results:
                    if self.readers[member]:
                        raise lacking(head, f": its result {member['number']}")
                    continue
                at[member] = (list(places), index)
                self._known(body, member, places, results[member["number"]])
                continue
            of = next(i for i in member.inputs if self.group_of.get(i) is group)
            there, where = at[of]
            if member.base in RESHAPES:
                there = _matched(body, member.type.shape, of.type.shape, there)
                self._known(body, member, there, self.read(of, body, at[of][0]))
            elif member.base in VIEWS:
                there, where = self._turned(member, there), None
                self._known(body, member, there, self.read(of, body, at[of][0]))
            at[member] = (there, where)
        writes: list[tuple[str, Memory]] = []
        needed = self._needed(group)
        for node in needed:
            there, where = at[node]
            parameter = "out" if len(needed) == 1 else f"out_{node.name}"
            value = self.read(node, body, there)
            where = where or flat(there, body.dims(node.type.shape))
            body.line(f"{parameter}[{where}] = {value};")
            writes.append((parameter, self._allocation(node)))
        for node in needed:
            self.allocate(node)
        return writes

    @staticmethod
    def _turned(member: Node, places: Places) -> list[str]:
        """The places of a permuted tensor by those of what it is of."""
        rank = len(places)
        if member.base == "permute":
            return [places[axis % rank] for axis in member["dims"]]
        one, other = axis_of(member, "dim0"), axis_of(member, "dim1")
        turned = list(places)
        turned[one], turned[other] = turned[other], turned[one]
        return turned

    def _known(self, body: Body, node: Node, places: Places, value: str) -> None:
        body.once((node, tuple(places)), lambda: value)

    def _needed(self, group: Group) -> list[Node]:
        """The members that others read, or that the module returns. A view is read through, so that
        what it is of is needed instead."""
        inside = {group.head, *group.members}
        needed: dict[Node, None] = {}
        outside: set[Node] = set(self.graph.outputs)
        for node in self.graph.nodes:
            if node not in inside:
                outside.update(i for i in node.inputs if i in inside)
        for node in reversed((group.head, *group.members)):
            if node not in outside:
                continue
            is_view = node.base in RESHAPES or node.base in VIEWS
            if is_view and (node not in self.graph.outputs or node.base in RESHAPES):
                outside.add(next(i for i in node.inputs if i in inside))
            else:
                needed[node] = None
        ordered = [n for n in (group.head, *group.members) if n in needed]
        if group.head in ordered and len(group.head.types) > 1:
            ordered.remove(group.head)
        return ordered

    # --- reading ---

    def read(self, node: Node, body: Body, places: Places) -> str:
        """The element of a tensor at these places: a name or an expression."""
        return body.once((node, tuple(places)), lambda: self._element(node, body, places))

    def _element(self, node: Node, body: Body, places: Places) -> str:
        memory = self.memory.get(node)
        if memory is not None:
            return self.loaded(memory, body, places)
        return self._made(node, body, places)

    def loaded(self, memory: Memory, body: Body, places: Places) -> str:
        kept = C_TYPES[memory.dtype]
        body.reads[memory.name] = kept.kept
        dims = body.dims(memory.shape)
        same = body.index is not None and (tuple(places), dims) == body.index[:2]
        index = body.index[2] if same and body.index is not None else body.flat(places, dims)
        text = f"{memory.name}[{index}]"
        if body.instead is not None:
            text = body.instead(memory, places) or text
        return f"float({text})" if memory.dtype in HALVES else text

    def _made(self, node: Node, body: Body, places: Places) -> str:
        base = node.base
        if base in RESHAPES:
            return self._reshaped(node, body, places)
        if base in VIEWS:
            return self.read(node["self"], body, VIEWS[base](node, body, places))
        if base in READERS:
            text = READERS[base](self, node, body, places)
            return self._named(node, body, text)
        if base in ELEMENTWISE:
            return self._named(node, body, self._elementwise(node, body, places))
        if node.op == "getitem":
            return self._part(node, body, places)
        raise lacking(node)

    def _named(self, node: Node, body: Body, text: str) -> str:
        if re.fullmatch(r"[\w.\-]+", text):
            return text
        return body.let(C_TYPES[node.type.dtype].computed, node.name, text, own=True)

    def _reshaped(self, node: Node, body: Body, places: Places) -> str:
        """Of a tensor that is not in memory: at the place that has the same number."""
        source = node["self"]
        there = _matched(body, source.type.shape, node.type.shape, places)
        return self.read(source, body, there)

    def _part(self, node: Node, body: Body, places: Places) -> str:
        """One of several views of a tensor."""
        source, which = node["self"], node["number"]
        if source.base not in PARTS:
            if which == 0:
                return self.read(source, body, places)
            raise lacking(source, f": its result {which}")
        axis = axis_of(source)
        if source.base == "unbind":
            there = [*places[:axis], str(which), *places[axis:]]
        else:
            start = "0"
            for one in source.types[:which]:
                start = plus(start, body.extent(one.shape[axis]))
            there = [*places[:axis], plus(start, places[axis]), *places[axis + 1 :]]
        return self.read(source["self"], body, there)

    def _elementwise(self, node: Node, body: Body, places: Places) -> str:
        row = ELEMENTWISE[node.base]
        dtype = node.type.dtype
        if row.of_operands:
            dtype = promoted([v for v in node.args.values() if is_value(v)])
        values: dict[str, str] = {"f": C_TYPES[dtype].suffix}
        expression = expression_of(row, node, dtype)
        for name, value in node.args.items():
            if f"{{{name}}}" not in expression or not is_value(value):
                continue
            kind = "bool" if name in CONDITIONS else dtype
            if isinstance(value, Node):
                text = self.read(value, body, self._broadcast(node, name, value, places))
                values[name] = atom(cast(text, value.type.dtype, kind))
            else:
                values[name] = atom(number(body, value, kind))
        return expression.format(**values)

    @staticmethod
    def _broadcast(node: Node, name: str, value: Node, places: Places) -> list[str]:
        shape = value.type.shape
        if node.base == "prelu" and name == "weight":
            return ["0"] if shape == (1,) else [places[1]]
        return broadcast(shape, places)


def listed(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from listed(one)


def _reused(host: Sequence[str], result: str) -> list[str]:
    """The lines of a host code, in which a tensor takes the memory of one of its shape that no
    later line reads."""
    last: dict[str, int] = {}
    for at, line in enumerate((*host, result)):
        for name in re.findall(r"\w+", line):
            last[name] = at
    lines: list[str] = []
    free: dict[str, list[tuple[int, str]]] = {}
    for at, line in enumerate(host):
        made = re.fullmatch(r"auto (\w+) = (torch::empty\(.*\));", line)
        if made is None:
            lines.append(line)
            continue
        name, kind = made.groups()
        waiting = free.setdefault(kind, [])
        dead = next((pair for pair in waiting if pair[0] < at), None)
        if dead is not None:
            waiting.remove(dead)
            line = f"auto& {name} = {dead[1]};"
        waiting.append((last[name], name))
        lines.append(line)
    return lines


def _launchers(host: Sequence[str]) -> list[str]:
    """The lines of a long host code, in which a kernel that is launched several times has a
    function of what differs between its launches."""
    keys = [_alike(line) for line in host]
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for line, key in zip(host, keys, strict=True):
        alike.setdefault(key, []).append(re.findall(r"\w+", line))
    lines: list[str] = []
    names: dict[tuple[str, ...], str] = {}
    for line, key in zip(host, keys, strict=True):
        if not key or len(alike[key]) < 2:
            lines.append(line)
            continue
        columns = list(zip(*alike[key], strict=True))
        differ = list(dict.fromkeys(c for c in columns if len(set(c)) > 1))
        words = [f"_{differ.index(c)}" if c in differ else c[0] for c in columns]
        if key not in names:
            names[key] = f"launch_{len(names) + 1}"
            tensors = [line.startswith(".data_ptr", m.end()) for m in re.finditer(r"\w+", line)]
            kinds = {
                c: "torch::Tensor" if t else "auto" for c, t in zip(columns, tensors, strict=True)
            }
            taken = ", ".join(f"const {kinds[c]}& _{n}" for n, c in enumerate(differ))
            lines.append(f"const auto {names[key]} = [&]({taken}) {{ {key[1].format(*words)} }};")
        given = dict(zip(columns, re.findall(r"\w+", line), strict=True))
        lines.append(f"{names[key]}({', '.join(given[c] for c in differ)});")
    return lines


def _alike(line: str) -> tuple[str, ...]:
    """Of the line of a launch: its kernel, and the line without names and numbers; else nothing."""
    launch = re.fullmatch(r"(\w+)<<<.*;", line)
    return (launch[1], re.sub(r"\w+", "{}", line)) if launch else ()


def promoted(values: Sequence[Any]) -> str:
    """The type that operands are compared in."""
    order = ("bool", "uint8", "int8", "int16", "int32", "int64")
    tensors = [v.type.dtype for v in values if isinstance(v, Node)]
    sized = [v.type.dtype for v in values if isinstance(v, Node) and v.type.shape]
    floats = [d for d in sized or tensors if d in FLOATS]
    if not floats:
        floats = [d for d in tensors if d in FLOATS]
    if floats:
        return max(floats, key=lambda d: ("float16", "bfloat16", "float32", "float64").index(d))
    if any(isinstance(v, float) for v in values):
        return "float32"
    best = max(tensors, key=order.index, default="int64")
    whole = any(isinstance(v, int) and not isinstance(v, bool) for v in values)
    return "int64" if best == "bool" and whole else best


def cast(text: str, of: str, to: str) -> str:
    """A value of one dtype as what another computes in."""
    one, other = C_TYPES[of].computed, C_TYPES[to].computed
    if one == other:
        return text
    return f"{atom(text)} != 0" if to == "bool" else f"({other}){atom(text)}"


def start_of(one: Pass | Scan, dtype: str) -> str:
    """What a pass or a scan begins with, as a literal."""
    return one.start if one.start in ("true", "false") else literal(float(one.start), dtype)


def typed(template: str, dtype: str) -> str:
    """A template for whole numbers: C's functions of floats have another name."""
    if dtype in FLOATS:
        return template
    return template.replace("fmax{f}", "max").replace("fmin{f}", "min")


def _matched(body: Body, old: Sequence[Extent], new: Sequence[Extent], places: Places) -> list[str]:
    """The places of an element in another shape of the same tensor: axis by axis where parts of the
    shapes have as many elements, else by its number."""
    import sympy

    there: list[str] = []
    i = j = 0
    while i < len(old) or j < len(new):
        start_i, start_j = i, j
        one: Any = sympy.Integer(1)
        other: Any = sympy.Integer(1)
        if i < len(old):
            one, i = one * old[i], i + 1
        if j < len(new):
            other, j = other * new[j], j + 1
        while sympy.expand(one - other) != 0 or (i == len(old)) != (j == len(new)):
            if i < len(old) and (j == len(new) or _fewer(one, other)):
                one, i = one * old[i], i + 1
            elif j < len(new):
                other, j = other * new[j], j + 1
            elif i < len(old):
                one, i = one * old[i], i + 1
            else:
                break
        inside, outside = old[start_i:i], new[start_j:j]
        dims = body.dims(outside)
        index = flat(places[start_j:j], dims)
        if len(inside) == 1:
            there.append(index)
        elif tuple(inside) == tuple(outside):
            there += places[start_j:j]
        else:
            name = index if re.fullmatch(r"\w+", index) else body.let("int", "at", index)
            there += body.split(name, body.dims(inside), "j")
    return there


def _fewer(one: Any, other: Any) -> bool:
    """Whether a product of sizes is a part of another."""
    import sympy

    ratio = sympy.cancel(other / one)
    return bool(sympy.fraction(ratio)[1] == 1)

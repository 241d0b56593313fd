"""Reads a module as a graph: traces at several shape sets, side by side, are one graph whose sizes
are the arguments' axes.

What a trace took for a number may have been a size: a constructor's `features`, the extent of a
`view`. Read at several shape sets such numbers differ; each is then looked up among the axes and
the constructor's numbers, and refused where it is none of them.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coding_framework.data.graph import Graph, Node, ScalarKind, Symbol, TensorType, replaced
from coding_framework.data.lookup import real_number, whole_number
from coding_framework.data.trace import Axis, Made, Trace, expression, has_tensor, value_of
from coding_framework.errors import UnreadableError
from coding_framework.reference_model import is_in_tf32
from coding_framework.types import Task, TestCase

if TYPE_CHECKING:
    import torch

MOST_WRITTEN = 1 << 14
"""Elements of a tensor that is written into the kernel's text."""
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        auto bool break case char class const continue default delete do double else enum extern
        false float for goto if inline int long new operator private public register return short
        signed sizeof static struct switch template this true typedef union unsigned void volatile
        while namespace using at torch std i n out max min exp log sqrt rsqrt pow abs floor ceil
        round rint sin cos tan tanh sinh cosh asin acos atan atan2 erf erfc fmod hypot isnan isinf
        log1p expm1 log2 log10 exp2 trunc copysign lgamma erfinv fabs fmax fmin blocks forward gamma
        y0 y1 j0 j1 jn yn index remainder select time make ptr options rand signal and or not xor
        """,
    )
)
"""Words of C, and functions that kernels call: no tensor may be called so."""


MOST_NAMED = 200
"""Arguments up to which a kernel calls them as the module does: its text has an end."""
MOST_LAYERS = 40
"""Of a module whose sizes are symbols while it is traced: their expressions grow with each layer
that makes an image smaller, and so does the time. A larger one is traced at numbers alone, and
these are looked up."""


def read(task: Task) -> Graph:
    """The graph of a task's module. Raises UnreadableError with what has no graph, and whatever the
    module raises where it is made."""
    made = _made(task)
    apart = _tied_apart(task, made)
    if apart is not None:
        with suppress(UnreadableError):
            return _read(task, [*made, apart])
        made = _made(task)
    return _read(task, made)


def _read(task: Task, made: list[Made]) -> Graph:
    varying = _varying(made)
    small = sum(not list(m.children()) for m in made[0].model.modules()) <= MOST_LAYERS
    own = (False, True) if made[0].has_own_tensors else (False,)
    refused: UnreadableError | None = None
    for anew in own:
        for symbolic in (varying, frozenset[Axis]()) if small else (frozenset[Axis](),):
            try:
                graph = _SideBySide(_traces(made, symbolic, anew)).graph()
                return _at_real_size(graph, _real(task, made))
            except UnreadableError as e:
                refused = refused or e
                made = [Made(task, m.case) for m in made]  # a forward may have changed them
    assert refused is not None
    raise refused


def _tied_apart(task: Task, made: Sequence[Made]) -> Made | None:
    """The module at a shape set at which axes differ that are equal at all others: heads times a
    head's width is the width at 128 and not at 129. None where a size plus one leaves equal what is
    equal, or where the module takes no such size."""
    case = made[0].case
    sizes = [a for a in made[0].init_args if isinstance(a, int) and not isinstance(a, bool)]
    for size in dict.fromkeys(sizes):
        if size < 2 or not any(size in spec.shape for spec in case.inputs):
            continue

        def moved(value: Any, size: int = size) -> Any:
            return value + 1 if type(value) is int and value == size else value

        inputs = tuple(
            spec.model_copy(update={"shape": tuple(map(moved, spec.shape))}) for spec in case.inputs
        )
        other = case.model_copy(
            update={"inputs": inputs, "init_args": tuple(map(moved, made[0].init_args))}
        )
        try:
            apart = Made(task, other)
            if _ties(made) > _ties([*made, apart]):
                return apart
        except Exception:
            continue
    return None


def _ties(made: Sequence[Made]) -> int:
    """How many varying axes are equal to another one at all shape sets."""
    shapes = [[n for shape, _ in one.given for n in shape] for one in made]
    if len({len(s) for s in shapes}) > 1:
        return 0
    found = [sizes for sizes in zip(*shapes, strict=True) if len(set(sizes)) > 1]
    return len(found) - len(set(found))


def _traces(made: Sequence[Made], symbolic: frozenset[Axis], anew: bool) -> list[Trace]:
    """At all shape sets; at the first alone where that holds for the others."""
    first = Trace(made[0], symbolic, anew=anew)
    if symbolic and first.holds_for(made):
        if not first.answers_for(made):  # is it the same all the same? raises where it is not
            _aligned(_alike([Trace(m, anew=anew) for m in made]))
        return [first]
    traces = [first, *(Trace(m, anew=anew) for m in made[1:])]
    return traces if symbolic else _alike(traces)


def _made(task: Task) -> list[Made]:
    """The module at each shape set: the first one, then those of real size, which differ from it in
    most. A number that is looked up must be right at each: at a few, others are too."""
    found: dict[Any, Made] = {}
    for case in (task.cases[0], *task.gpu_cases, *task.cases[1:]):
        if _asked(case) not in found:
            found[_asked(case)] = Made(task, case)
    return list(found.values())


def _asked(case: TestCase) -> tuple[Any, ...]:
    return tuple(spec.shape for spec in case.inputs), case.init_args


def _real(task: Task, made: Sequence[Made]) -> Made:
    """At a GPU's main sizes, where the task has any, else at the first ones."""
    case = task.gpu_cases[0] if task.gpu_cases else task.cases[0]
    return next(m for m in made if _asked(m.case) == _asked(case))


def _at_real_size(graph: Graph, made: Made) -> Graph:
    """The graph with the sizes of a GPU's main shape set and the precision of its products: by them
    the form of a kernel is chosen."""
    return replace(graph, sizes=sizes_at(graph, made), tf32=is_in_tf32(made.source))


def sizes_at(graph: Graph, made: Made) -> dict[str, float]:
    """What each symbol of a task's graph is worth where its module is made so."""
    shapes = dict(zip((a.name for a in graph.arguments), made.given, strict=True))
    numbers = _numbers(made.init_args)
    return {
        s.name: numbers[s.argument] if s.axis < 0 else shapes[s.argument][0][s.axis]
        for s in graph.symbols
    }


def _varying(made: Sequence[Made]) -> frozenset[Axis]:
    """The axes whose length is another one at other shape sets."""
    shapes = [[shape for shape, _ in one.given] for one in made]
    if len({tuple(map(len, together)) for together in shapes}) > 1:
        raise UnreadableError(
            "the module has other parameters at other sizes: the number of its layers is a "
            "size, and no kernel is right for all"
        )
    return frozenset(
        (tensor, axis)
        for tensor, together in enumerate(zip(*shapes, strict=True))
        for axis, sizes in enumerate(zip(*together, strict=True))
        if len(set(sizes)) > 1
    )


_LEFT_OUT = {"aten.slice.Tensor": 0, "aten.slice_scatter.default": 1}
"""What PyTorch leaves out where it is of all of an axis; how many tensors beside the one it is of
stand before the axis."""


class Whole:
    """A slice that a trace leaves out, as an operation."""

    kwargs: Mapping[str, Any] = {}

    def __init__(self, of: Any, like: Any, before: int) -> None:
        """of: the tensor's value in this trace. like: the slice in another."""
        axis = _axis(like)
        length = of.shape[axis]
        end = like.args[before + 3] if len(like.args) > before + 3 else length
        asked = end if isinstance(end, int) and end > 1 << 60 else length
        self.args = (*[None] * (before + 1), axis, 0, asked)
        self.meta = {"val": of}


def _axis(node: Any) -> Any:
    """Of a slice; None of another operation, -1 where there is none."""
    if node is None:
        return -1
    before = _LEFT_OUT.get(str(node.target))
    return None if before is None else (*node.args, 0, 0)[before + 1]


def _aligned(traces: Sequence[Trace]) -> list[tuple[Any, ...]]:
    """The operations of all traces side by side. Raises UnreadableError where they differ in more
    than what PyTorch leaves out."""
    aligned: list[tuple[Any, ...]] = []
    place = [0] * len(traces)
    together = [*zip(*(t.arguments for t in traces), strict=True),
                *zip(*(t.constants for t in traces), strict=False)]  # fmt: skip
    beside = {node: nodes for nodes in together for node in nodes}
    while any(at < len(t.nodes) for at, t in zip(place, traces, strict=True)):
        found = [t.nodes[at] if at < len(t.nodes) else None
                 for at, t in zip(place, traces, strict=True)]  # fmt: skip
        kinds = {(str(n.target), _axis(n)) if n is not None else None for n in found}
        if len(kinds) > 1:
            slices = [n for n in found if isinstance(_axis(n), int) and n is not None]
            if not slices:
                raise _unlike(found)
            like = min(slices, key=_axis)
            before = _LEFT_OUT[str(like.target)]
            of = beside.get(like.args[0])
            if of is None:
                raise _unlike(found)
            found = [
                n if n is not None and (n.target, _axis(n)) == (like.target, _axis(like))
                else Whole(one.meta["val"], like, before)
                for n, one in zip(found, of, strict=True)
            ]  # fmt: skip
        beside |= dict.fromkeys((n for n in found if not isinstance(n, Whole)), tuple(found))
        place = [at + (not isinstance(n, Whole)) for at, n in zip(place, found, strict=True)]
        aligned.append(tuple(found))
    return aligned


def _unlike(found: Sequence[Any]) -> UnreadableError:
    node = next(n for n in found if n is not None)
    where = node.meta.get("stack_trace", "")
    return UnreadableError(
        f"the module does other operations at different sizes ({where or node.target}): a loop "
        "over an axis or an `if` on a size has no kernel for all sizes"
    )


def _alike(traces: list[Trace]) -> list[Trace]:
    """Without the one of at least four that leaves operations out, where an axis has length 1:
    PyTorch may. Where more differ, or do others, all stay, and are refused."""
    first, *_ = operations = [[str(n.target) for n in t.nodes] for t in traces]
    alike = [t for t, own in zip(traces, operations, strict=True) if own == first]
    if not 3 <= len(alike) == len(traces) - 1:
        return traces
    (odd,) = (t for t in traces if t not in alike)
    rest = iter(first)
    fewer = all(str(n.target) in rest for n in odd.nodes)
    return alike if fewer and any(1 in shape for shape, _ in odd.made.given) else traces


# --- the graphs side by side --------------------------------------------------------------------


class _SideBySide:
    """The graph of the first shape set, its numbers compared with those of the others."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces = traces
        self.first = traces[0]
        self.names: dict[str, int] = {}
        self.symbols: dict[str, Symbol] = {}
        self.scalars = _scalars(traces)
        self.found: dict[Any, Node] = {}
        self.numbers: dict[tuple[Any, ...], Any] = {}
        self.renaming: list[dict[Any, Any]] = [{} for _ in traces]
        """From a trace's own symbols to ours."""
        self.sizes: list[dict[Any, Any]] = [{} for _ in traces]
        """What our symbols are worth at each shape set."""
        self.reals: dict[tuple[float, ...], Any] = {}
        """The same of the constructor's numbers that are no whole ones."""
        self.axes: dict[tuple[int, ...], Any] = {}
        """Numbers at each shape set -> the symbol that has them."""

    def _name(self, wish: str) -> str:
        """A C identifier that nothing else has."""
        wish = re.sub(r"\W", "_", wish) or "t"
        wish = f"t{wish}" if wish[0].isdigit() else wish
        if wish in _WORDS or keyword.iskeyword(wish):
            wish = f"{wish}_"
        count = self.names[wish] = self.names.get(wish, 0) + 1
        return wish if count == 1 else self._name(f"{wish}_{count}")

    def graph(self) -> Graph:
        together = _aligned(self.traces)
        arguments = self._arguments()
        nodes = [self._node(traced) for traced in together]
        outputs = tuple(self._argument([n] * len(self.traces)) for n in self.first.outputs)
        if any(not isinstance(o, Node) for o in outputs):
            raise UnreadableError("the module returns a number and no tensor: return a tensor")
        nodes, instead = _extremes_alone(used(nodes, outputs))
        _chain(nodes)
        return Graph(
            arguments=tuple(arguments),
            scalars=tuple((name, kind) for name, kind, _ in self.scalars),
            symbols=tuple(self.symbols.values()),
            nodes=tuple(nodes),
            outputs=tuple(replaced(one, instead) for one in outputs),
            constants=self.constants,
        )

    # --- arguments ---

    def _arguments(self) -> list[Node]:
        """Inputs, parameters and buffers, with a symbol for each axis that varies or is dynamic."""
        import sympy

        taken = [self._name(text) for text in self._argument_names()]
        own: list[tuple[str, int, list[Any], tuple[int, ...]]] = []
        for place, name in enumerate(taken):
            shapes = [t.made.given[place][0] for t in self.traces]
            metas = [t.arguments[place].meta["val"] for t in self.traces]
            for axis in range(len(shapes[0])):
                sizes = [expression(m.shape[axis]) for m in metas]
                own.append((name, axis, sizes, tuple(shape[axis] for shape in shapes)))
        for name, axis, sizes, actual in own:  # axes that are symbols of the export
            if sizes[0].is_Symbol and sizes[0] not in self.renaming[0]:
                symbol = self._symbol(sympy, name, axis, actual)
                for rename, size in zip(self.renaming, sizes, strict=True):
                    if size.is_Symbol:
                        rename.setdefault(size, symbol)
        for name, axis, _, actual in own:  # what the export took for a number and is none
            if len(set(actual)) > 1 and actual not in self.axes:
                self._symbol(sympy, name, axis, actual)
        for name, kind, values in self.scalars:
            if len(set(values)) == 1 or kind == "bool":
                continue
            if kind == "int" and tuple(values) not in self.axes:
                self._symbol(sympy, name, -1, tuple(int(v) for v in values))
            elif kind == "float":
                symbol = self.reals[tuple(values)] = sympy.Symbol(name, real=True)
                self.symbols[name] = Symbol(name, name, -1)
                for known, value in zip(self.sizes, values, strict=True):
                    known[symbol] = sympy.Float(value, 17)
        nodes = []
        for place, name in enumerate(taken):
            metas = [e.arguments[place].meta["val"] for e in self.traces]
            made = Node("argument", name, (self._type(metas),))
            self.found |= dict.fromkeys((t.arguments[place] for t in self.traces), made)
            nodes.append(made)
        self._constants()
        return nodes

    def _argument_names(self) -> list[str]:
        """The module's own; numbers for the parameters of a network that has many."""
        named = self.first.made.names
        inputs = len(self.first.made.case.inputs)
        if len(named) <= MOST_NAMED:
            return named
        return [*named[:inputs], *(f"p{n}" for n in range(len(named) - inputs))]

    def _symbol(self, sympy: Any, argument: str, axis: int, actual: tuple[int, ...]) -> Any:
        name = self._name(f"{argument}_{axis}") if axis >= 0 else argument
        symbol = sympy.Symbol(name, integer=True, positive=True)
        self.symbols[name] = Symbol(name, argument, axis)
        self.axes.setdefault(actual, symbol)
        for sizes, value in zip(self.sizes, actual, strict=True):
            sizes[symbol] = sympy.Integer(value)
        return symbol

    def _constants(self) -> None:
        """Tensors that the module makes from literals, whose elements are the same everywhere."""
        import torch

        self.constants: dict[str, tuple[float, ...]] = {}
        for together in zip(*(t.constants for t in self.traces), strict=False):
            if not together[0].users:
                continue
            tensors = [t.constant(n) for t, n in zip(self.traces, together, strict=True)]
            first = tensors[0]
            if not isinstance(first, torch.Tensor) or first.numel() > MOST_WRITTEN:
                raise UnreadableError(
                    f"the module keeps the tensor {together[0].name} outside its parameters and "
                    "buffers, so that no kernel is given it: use register_buffer"
                )
            if any(t.shape != first.shape or not t.equal(first) for t in tensors[1:]):
                raise UnreadableError(
                    f"the tensor {together[0].name} is none of the module's parameters and buffers "
                    "and depends on the sizes: use register_buffer, or make it in forward"
                )
            name = self._name("constant")
            node = Node("constant", name, (TensorType(tuple(first.shape), _dtype(first.dtype)),))
            self.found |= dict.fromkeys(together, node)
            self.constants[name] = tuple(float(v) for v in first.flatten().tolist())

    # --- operations ---

    def _node(self, together: Sequence[Any]) -> Node:
        first = next(n for n in together if not isinstance(n, Whole))
        value = first.meta.get("val")
        if getattr(first.target, "__name__", "") == "getitem":
            source, number = first.args
            if isinstance(source.meta["val"], (tuple, list)) and source in self.found:
                node = Node(
                    "getitem", self._name(self.found[source].name),
                    (self._type([n.meta["val"] for n in together]),),
                    {"self": self.found[source], "number": number}, self.found[source].line,
                )  # fmt: skip
                self.found |= dict.fromkeys(together, node)
                return node
        op = str(first.target).removeprefix("aten.")
        metas = [n.meta["val"] for n in together]
        several = isinstance(value, (tuple, list))
        types = (
            tuple(
                self._type(parts) if has_tensor(parts[0]) else TensorType((), "none")
                for parts in zip(*metas, strict=True)
            )
            if several
            else (self._type(metas),)
        )
        line = first.meta.get("stack_trace", "")
        try:
            args = self._by_schema(first.target, together)
        except UnreadableError as e:
            raise UnreadableError(f"{op} ({line}): {e}") from e
        node = Node(op, self._name(op.partition(".")[0].strip("_")), types, args, line)
        self.found |= dict.fromkeys(together, node)
        return node

    def _by_schema(self, target: Any, together: Sequence[Any]) -> Mapping[str, Any]:
        """The arguments by their names, defaults filled in."""
        schema = getattr(target, "_schema", None)
        if schema is None:
            raise UnreadableError(f"{target} is no operation of ATen")
        found: dict[str, Any] = {}
        for number, argument in enumerate(schema.arguments):
            given = [
                n.args[number]
                if number < len(n.args)
                else n.kwargs.get(argument.name, argument.default_value)
                for n in together
            ]
            found[argument.name] = self._argument(given)
        return found

    def _argument(self, given: Sequence[Any]) -> Any:
        """An argument at each shape set -> the one for all of them."""
        import torch
        from torch import fx

        first = next((g for g in given if isinstance(g, fx.Node)), given[0])
        if isinstance(first, fx.Node):
            if isinstance(first.meta.get("val"), bool):
                return self._argument([n.meta["val"] for n in given])
            if first in self.found:
                return self.found[first]
            return self._number([expression(value_of(n)) for n in given])
        if isinstance(first, (tuple, list)):
            return [self._argument(parts) for parts in zip(*given, strict=True)]
        if isinstance(first, torch.dtype):
            return _dtype(first)
        if isinstance(first, bool) or first is None or isinstance(first, str):
            if any(g != first for g in given):
                raise UnreadableError(f"it is {first} at one size and something else at others")
            return first
        if isinstance(first, (int, float, torch.SymInt, torch.SymFloat)):
            return self._number([expression(value_of(g)) for g in given])
        return None  # a device, a layout or a memory format

    def _type(self, metas: Sequence[Any]) -> TensorType:
        sizes = zip(*(m.shape for m in metas), strict=True)
        shape = tuple(self._number([expression(s) for s in size]) for size in sizes)
        return TensorType(shape, _dtype(metas[0].dtype))

    # --- numbers ---

    def _number(self, given: Sequence[Any]) -> Any:
        """A number, or the expression of our symbols that is right at every shape set."""
        key = tuple(given)
        if key not in self.numbers:
            self.numbers[key] = self._looked_up(given)
        return self.numbers[key]

    def _looked_up(self, given: Sequence[Any]) -> Any:
        ours = [e.xreplace(r) for e, r in zip(given, self.renaming, strict=True)]
        actual = [self._worth(g, e) for g, e in zip(given, self.traces, strict=True)]
        if all(isinstance(a, float) and math.isnan(a) for a in actual):
            return math.nan
        for one in ours:
            if self._right(one, actual):
                return _plain(one)
        if all(isinstance(a, int) for a in actual):
            found = whole_number(self.axes, tuple(actual))
            if found is not None:
                self.axes.setdefault(tuple(actual), found)
        else:
            known: dict[tuple[float, ...], Any] = {**self.reals}
            known.update({tuple(map(float, k)): s for k, s in self.axes.items()})
            found = real_number(known, actual)
        if found is None:
            raise UnreadableError(
                f"the number {actual[0]} is {', '.join(map(str, actual[1:]))} at other sizes, and "
                "follows from no axis of the arguments and no number of the constructor"
            )
        return found

    def _worth(self, expression: Any, export: Trace) -> Any:
        value = expression.xreplace(export.values)
        return _plain(value) if value.is_number else value

    def _right(self, expression: Any, actual: Sequence[Any]) -> bool:
        """Whether it is worth that much at each shape set."""
        if expression.is_number and all(expression == a for a in actual):
            return True
        try:
            values = [expression.xreplace(sizes) for sizes in self.sizes]
        except ZeroDivisionError:
            return False
        return all(
            v.is_number
            and v.is_finite
            and (v == a or math.isclose(float(v), float(a), rel_tol=1e-9))
            for v, a in zip(values, actual, strict=True)
        )


def _plain(value: Any) -> Any:
    """A number of Python where it is one."""
    if value.is_Integer:
        return int(value)
    return float(value) if value.is_number else value


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _numbers(init_args: Sequence[Any]) -> dict[str, Any]:
    """The numbers among the constructor's arguments, by what a kernel calls them."""
    found = [value for value in init_args if type(value) in (bool, int, float)]
    return {f"scalar{number}": value for number, value in enumerate(found)}


def _scalars(traces: Sequence[Trace]) -> list[tuple[str, ScalarKind, list[Any]]]:
    """The numbers of the constructor, with their values at each shape set."""
    kinds: dict[type, ScalarKind] = {bool: "bool", int: "int", float: "float"}
    first, *others = (_numbers(t.made.init_args) for t in traces)
    return [
        (name, kinds[type(value)], [value, *(other[name] for other in others)])
        for name, value in first.items()
    ]


def used(nodes: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """Without what no output depends on."""
    needed = {id(o) for o in outputs}
    kept = []
    for node in reversed(nodes):
        if id(node) in needed:
            kept.append(node)
            needed.update(id(i) for i in node.inputs)
    return kept[::-1]


def _extremes_alone(nodes: Sequence[Node]) -> tuple[list[Node], dict[Node, Node]]:
    """Where nobody reads where the extremes along an axis are, they are a reduction, which stands
    instead of its first result."""
    read = {(n["self"], n["number"]) for n in nodes if n.op == "getitem"}
    kept: list[Node] = []
    instead: dict[Node, Node] = {}
    for node in nodes:
        if node.base in ("max", "min") and len(node.types) == 2 and (node, 1) not in read:
            node.op, node.types = f"a{node.base}.default", node.types[:1]
        if node.op == "getitem" and len(node["self"].types) == 1:
            instead[node] = node["self"]
        else:
            node.args = {name: replaced(value, instead) for name, value in node.args.items()}
            kept.append(node)
    return kept, instead


def _chain(nodes: Sequence[Node]) -> None:
    """A concatenation of another one's tensors and more is one of that and more: of layers that
    read all before them the text grows with their number, and not with its square."""
    known: dict[tuple[Any, ...], Node] = {}
    for node in nodes:
        if node.base != "cat":
            continue
        tensors, dim = tuple(node["tensors"]), node.get("dim", 0)
        known.setdefault((dim, *tensors), node)
        for length in range(len(tensors) - 1, 1, -1):
            if before := known.get((dim, *tensors[:length])):
                node.args = {**node.args, "tensors": [before, *tensors[length:]]}
                break

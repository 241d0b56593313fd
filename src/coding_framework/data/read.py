"""Reads a module as a graph: `torch.export` with symbolic sizes, on tensors without values.

    source --made on the meta device--> module --export, functional_call--> ATen graph
    graphs at several shape sets, side by side --> one graph whose sizes are the arguments' axes

What the export took for a number may have been a size: a constructor's `features`, the extent of a
`view`. Read at several shape sets such numbers differ; each is then looked up among the axes and
the constructor's numbers, and refused where it is none of them.
"""

from __future__ import annotations

import inspect
import keyword
import linecache
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coding_framework.data.graph import Graph, Node, ScalarKind, Symbol, TensorType
from coding_framework.errors import UsageError
from coding_framework.reference_model import (
    REFERENCE_FILE,
    make_model,
    recorded_definitions,
    run_reference,
)
from coding_framework.types import Task, TestCase

if TYPE_CHECKING:
    import torch

KEPT_WHOLE = (
    "linear.default", "matmul.default", "einsum.default", "layer_norm.default",
    "group_norm.default", "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input",
    "dropout.default", "gelu.default", "silu.default", "mish.default", "softplus.default",
    "elu.default", "leaky_relu.default", "hardtanh.default", "hardsigmoid.default",
    "hardswish.default", "log_sigmoid.default", "softmax.int", "log_softmax.int",
    "_softmax.default", "_log_softmax.default", "logsumexp.default", "selu.default",
    "celu.default", "relu6.default", "softshrink.default", "hardshrink.default",
    "threshold.default", "adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default",
    "adaptive_avg_pool3d.default", "_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default",
    "batch_norm.default", "instance_norm.default", "prelu.default", "var.correction",
    "std.correction", "var_mean.correction", "pixel_shuffle.default", "lerp.Tensor", "lerp.Scalar",
    "addcmul.default", "addcdiv.default", "rms_norm.default",
)  # fmt: skip
"""Operations that PyTorch could take apart and that have a lowering of their own."""


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
        y0 y1 j0 j1 jn yn index remainder select time rand signal and or not xor
        """,
    )
)
"""Words of C, and functions that kernels call: no tensor may be called so."""


class UnreadableError(UsageError):
    """A module that cannot be read as a graph, or an operation without a kernel: one sentence with
    the operation and the line of the module."""


def read(task: Task) -> Graph:
    """The graph of a task's module. Raises UnreadableError with what has no graph, and whatever the
    module raises where it is made."""
    first = task.cases[0]
    graphs = [_Export(task, first)]
    if not graphs[0].holds_for(task):
        graphs += [_Export(task, case) for case in _telling(first, _others(task))]
    return _SideBySide(task, graphs).graph()


def _others(task: Task) -> list[TestCase]:
    """All shape sets but the first one; those of real size differ from it in most."""
    return [*task.gpu_cases, *task.cases[1:]]


def _telling(first: TestCase, others: Sequence[TestCase]) -> list[TestCase]:
    """The fewest shape sets in which every number differs from the first one's that does in any."""
    chosen: list[TestCase] = []
    seen: set[object] = set()
    while others:
        best = max(others, key=lambda case: len(_differing(first, case) - seen))
        if not _differing(first, best) - seen:
            break
        chosen.append(best)
        seen |= _differing(first, best)
    return chosen


def _differing(one: TestCase, other: TestCase) -> set[object]:
    """Which axes and numbers of the constructor are others."""
    found: set[object] = {
        (number, axis)
        for number, (x, y) in enumerate(zip(one.inputs, other.inputs, strict=True))
        for axis, (a, b) in enumerate(zip(x.shape, y.shape, strict=True))
        if a != b
    }
    numbers = zip(one.init_args, other.init_args, strict=False)
    return found | {place for place, (a, b) in enumerate(numbers) if a != b}


class _Export:
    """A task's module exported at one shape set."""

    def __init__(self, task: Task, case: TestCase) -> None:
        import sympy
        import torch
        from torch.export import Dim, default_decompositions, export

        namespace = run_reference(task.reference)
        self.init_args = tuple(case.init_args or task.init_args)
        with torch.device("meta"), recorded_definitions() as definitions:
            model = make_model(namespace["Model"], self.init_args)
        _with_own_tensors(model, namespace["Model"], self.init_args)
        state = definitions.parameters(model)
        self.case = case
        self.input_names = _input_names(model, len(case.inputs))
        self.parameter_names = list(state)
        given = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in case.inputs]
        given += [torch.empty(p.shape, dtype=p.dtype) for p in state.values()]
        self.given = given
        count = len(case.inputs)
        names = self.parameter_names
        self.linked: Callable[[], str] = _linecache_of(task.reference)

        class Whole(torch.nn.Module):
            def forward(self, *given: Any) -> Any:
                parameters = dict(zip(names, given[count:], strict=True))
                return torch.func.functional_call(model, parameters, given[:count])

        axes = tuple(dict.fromkeys(range(t.dim()), Dim.AUTO) for t in given)
        table = default_decompositions()
        for name in KEPT_WHOLE:
            base, overload = name.split(".")
            table.pop(getattr(getattr(torch.ops.aten, base, None), overload, None), None)
        with _quiet(), torch.no_grad():
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                self.program: Any = export(
                    Whole(), tuple(given), dynamic_shapes=(axes,), strict=False
                ).run_decompositions(table)
            except Exception as e:
                raise UnreadableError(_why_not(e)) from e
            finally:
                torch.backends.mha.set_fastpath_enabled(True)
        self.nodes = [n for n in self.program.graph.nodes if n.op == "call_function"]
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        user = set(self.program.graph_signature.user_inputs)
        self.arguments = [n for n in placeholders if n.name in user]
        self.constants = [n for n in placeholders if n.name not in user]
        self.values = {
            size.node.expr: sympy.Integer(actual)
            for node, tensor in zip(self.arguments, given, strict=True)
            for size, actual in zip(node.meta["val"].shape, tensor.shape, strict=True)
            if not _expression(size).is_number
        }
        """Of each symbol that is an axis, and of expressions of them that are one."""

    def holds_for(self, task: Task) -> bool:
        """Whether no number in it can be a size: the constructor's numbers are the same at all
        shape sets, and each axis that varies is a symbol."""
        cases = (task.cases[0], *_others(task))
        if any((case.init_args or task.init_args) != self.init_args for case in cases):
            return False
        for number, node in enumerate(self.arguments[: len(self.case.inputs)]):
            for axis, size in enumerate(node.meta["val"].shape):
                varies = len({case.inputs[number].shape[axis] for case in cases}) > 1
                if varies and _expression(size).is_number:
                    return False
        return True

    @property
    def outputs(self) -> list[Any]:
        """The nodes that the module returns."""
        (last,) = (n for n in self.program.graph.nodes if n.op == "output")
        specs = self.program.graph_signature.output_specs
        pairs = zip(last.args[0], specs, strict=True)
        return [node for node, spec in pairs if spec.kind.name == "USER_OUTPUT"]


def _with_own_tensors(model: Any, kind: Any, init_args: Sequence[Any]) -> None:
    """Give the tensors that a module keeps outside its parameters and buffers their values: they
    are no arguments of a kernel, and are written into it."""
    import torch

    def own(module: Any) -> Iterator[tuple[str, Any]]:
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield name, value

    if any(any(own(module)) for module in model.modules()):
        with torch.device("cpu"):
            made = make_model(kind, init_args)
        for module, there in zip(model.modules(), made.modules(), strict=True):
            for name, value in list(own(there)):
                setattr(module, name, value.detach())


def _input_names(model: Any, count: int) -> list[str]:
    """What `forward` calls its inputs."""
    names = [
        p.name
        for p in inspect.signature(model.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return [*names, *(f"input{k}" for k in range(len(names), count))][:count]


class _quiet:  # noqa: N801 - a block, as contextlib's are
    """Without the warnings and logs of an export, which are about a user's module."""

    def __enter__(self) -> None:
        self.caught = warnings.catch_warnings()
        self.caught.__enter__()
        warnings.simplefilter("ignore")
        self.level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        logging.disable(self.level)
        self.caught.__exit__(None, None, None)


def _linecache_of(source: str) -> Callable[[], str]:
    """Lines of a reference can be shown: it is compiled under a name that is no file."""
    lines = source.splitlines(keepends=True)
    linecache.cache[REFERENCE_FILE] = (len(source), None, lines, REFERENCE_FILE)
    return lambda: REFERENCE_FILE


def _why_not(error: Exception) -> str:
    """One sentence on a module that could not be exported."""
    import traceback

    said = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename == REFERENCE_FILE]
    trace = re.findall(rf'File "{re.escape(REFERENCE_FILE)}", line (\d+)', str(error))
    line = own[-1].lineno if own else int(trace[-1]) if trace else 0
    where = f" (line {line} of the module: {_line(line)})" if line else ""
    if "data-dependent" in said or "item()" in said or "GuardOnDataDependent" in said:
        return (
            f"the module decides by values of its inputs{where}, and no kernel is right for "
            "all: decide by shapes alone, or use torch.where"
        )
    return f"the module cannot be read as a graph{where}: {type(error).__name__}: {said[:200]}"


def _line(number: int) -> str:
    return linecache.getline(REFERENCE_FILE, number).strip()


def line_of(trace: str) -> str:
    """The last line of the module in a stack trace, with its number."""
    numbers = re.findall(rf'File "{re.escape(REFERENCE_FILE)}", line (\d+)', trace or "")
    return f"line {numbers[-1]}: {_line(int(numbers[-1]))}" if numbers else ""


# --- the graphs side by side --------------------------------------------------------------------


class _SideBySide:
    """The graph of the first shape set, its numbers compared with those of the others."""

    def __init__(self, task: Task, exports: Sequence[_Export]) -> None:
        self.task, self.exports = task, exports
        self.first = exports[0]
        self.names: dict[str, int] = {}
        self.symbols: dict[str, Symbol] = {}
        self.scalars = _scalars(exports)
        self.found: dict[Any, Node] = {}
        self.renaming: list[dict[Any, Any]] = [{} for _ in exports]
        """From an export's own symbols to ours."""
        self.sizes: list[dict[Any, int]] = [{} for _ in exports]
        """What our symbols are worth at each shape set."""
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
        self._same_length()
        arguments = self._arguments()
        nodes = []
        for together in zip(*(e.nodes for e in self.exports), strict=True):
            made = self._node(together)
            if made is not None:
                nodes.append(made)
        outputs = tuple(self._argument([n] * len(self.exports)) for n in self.first.outputs)
        if any(not isinstance(o, Node) for o in outputs):
            raise UnreadableError("the module returns a number and no tensor: return a tensor")
        return Graph(
            arguments=tuple(arguments),
            scalars=tuple((name, kind) for name, kind, _ in self.scalars),
            symbols=tuple(self.symbols.values()),
            nodes=tuple(_used(nodes, outputs)),
            outputs=outputs,
            constants=self.constants,
        )

    def _same_length(self) -> None:
        lengths = {len(e.nodes) for e in self.exports}
        for a, *rest in zip(*(e.nodes for e in self.exports), strict=False):
            if any(str(b.target) != str(a.target) for b in rest):
                where = line_of(a.meta.get("stack_trace", ""))
                raise UnreadableError(
                    f"the module does other operations at other sizes ({where or a.target}): a "
                    "loop over an axis or an `if` on a size has no kernel for all sizes"
                )
        if len(lengths) > 1:
            raise UnreadableError(
                f"the module does {min(lengths)} to {max(lengths)} operations at different sizes: "
                "a loop over an axis has no kernel for all sizes"
            )

    # --- arguments ---

    def _arguments(self) -> list[Node]:
        """Inputs, parameters and buffers, with a symbol for each axis that varies or is dynamic."""
        import sympy

        said = [*self.first.input_names, *self.first.parameter_names]
        taken = [self._name(text) for text in said]
        own: list[tuple[str, int, list[Any], tuple[int, ...]]] = []
        for place, name in enumerate(taken):
            tensors = [e.given[place] for e in self.exports]
            metas = [e.arguments[place].meta["val"] for e in self.exports]
            for axis in range(tensors[0].dim()):
                sizes = [_expression(m.shape[axis]) for m in metas]
                own.append((name, axis, sizes, tuple(t.shape[axis] for t in tensors)))
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
            whole = kind == "int" and len(set(values)) > 1 and tuple(values) not in self.axes
            if whole:
                self._symbol(sympy, name, -1, tuple(int(v) for v in values))
        nodes = []
        for place, name in enumerate(taken):
            metas = [e.arguments[place].meta["val"] for e in self.exports]
            made = Node("argument", name, (self._type(metas),))
            self.found[self.first.arguments[place]] = made
            nodes.append(made)
        self._constants()
        return nodes

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
        for together in zip(*(e.constants for e in self.exports), strict=True):
            tensors = [
                e.program.constants.get(
                    e.program.graph_signature.inputs_to_lifted_tensor_constants.get(n.name, "")
                )
                for e, n in zip(self.exports, together, strict=True)
            ]
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
            self.found[together[0]] = node
            self.constants[name] = tuple(float(v) for v in first.flatten().tolist())

    # --- operations ---

    def _node(self, together: Sequence[Any]) -> Node | None:
        first = together[0]
        value = first.meta.get("val")
        if not _has_tensor(value):
            return None  # a size: it stands where it is used
        if getattr(first.target, "__name__", "") == "getitem":
            source, number = first.args
            if isinstance(source.meta["val"], (tuple, list)) and source in self.found:
                node = Node(
                    "getitem", self._name(self.found[source].name),
                    (self._type([n.meta["val"] for n in together]),),
                    {"self": self.found[source], "number": number}, self.found[source].line,
                )  # fmt: skip
                self.found[first] = node
                return node
        op = str(first.target).removeprefix("aten.")
        metas = [n.meta["val"] for n in together]
        several = isinstance(value, (tuple, list))
        types = (
            tuple(
                self._type(parts) if _has_tensor(parts[0]) else TensorType((), "none")
                for parts in zip(*metas, strict=True)
            )
            if several
            else (self._type(metas),)
        )
        line = line_of(first.meta.get("stack_trace", ""))
        try:
            args = self._by_schema(together)
        except UnreadableError as e:
            raise UnreadableError(f"{op} ({line}): {e}") from e
        node = Node(op, self._name(op.partition(".")[0].strip("_")), types, args, line)
        self.found[first] = node
        return node

    def _by_schema(self, together: Sequence[Any]) -> Mapping[str, Any]:
        """The arguments by their names, defaults filled in."""
        schema = getattr(together[0].target, "_schema", None)
        if schema is None:
            raise UnreadableError(f"{together[0].target} is no operation of ATen")
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

        first = given[0]
        if isinstance(first, fx.Node):
            if first in self.found:
                return self.found[first]
            return self._number([_expression(n.meta["val"]) for n in given])
        if isinstance(first, (tuple, list)):
            return [self._argument(parts) for parts in zip(*given, strict=True)]
        if isinstance(first, torch.dtype):
            return _dtype(first)
        if isinstance(first, bool) or first is None or isinstance(first, str):
            if any(g != first for g in given):
                raise UnreadableError(f"it is {first} at one size and something else at others")
            return first
        if isinstance(first, (int, float, torch.SymInt, torch.SymFloat)):
            return self._number([_expression(g) for g in given])
        return None  # a device, a layout or a memory format

    def _type(self, metas: Sequence[Any]) -> TensorType:
        sizes = zip(*(m.shape for m in metas), strict=True)
        shape = tuple(self._number([_expression(s) for s in size]) for size in sizes)
        return TensorType(shape, _dtype(metas[0].dtype))

    # --- numbers ---

    def _number(self, given: Sequence[Any]) -> Any:
        """A number, or the expression of our symbols that is right at every shape set."""
        import sympy

        ours = [e.xreplace(r) for e, r in zip(given, self.renaming, strict=True)]
        actual = [self._worth(g, e) for g, e in zip(given, self.exports, strict=True)]
        for expression in ours:
            if self._right(expression, actual):
                return _plain(expression)
        found = self.axes.get(tuple(actual)) if all(isinstance(a, int) for a in actual) else None
        for expression in [found] if found is not None else self._simple(sympy, actual):
            if self._right(expression, actual):
                return _plain(expression)
        raise UnreadableError(
            f"the number {actual[0]} is {', '.join(map(str, actual[1:]))} at other sizes, and "
            "follows from no axis of the arguments and no number of the constructor"
        )

    def _worth(self, expression: Any, export: _Export) -> Any:
        value = expression.xreplace(export.values)
        return _plain(value) if value.is_number else value

    def _right(self, expression: Any, actual: Sequence[Any]) -> bool:
        """Whether it is worth that much at each shape set."""
        values = [expression.xreplace(sizes) for sizes in self.sizes]
        return all(
            v.is_number and (v == a or math.isclose(float(v), float(a), rel_tol=1e-9))
            for v, a in zip(values, actual, strict=True)
        )

    def _simple(self, sympy: Any, actual: Sequence[Any]) -> Iterator[Any]:
        """Expressions of one symbol or of two, the simplest first."""
        symbols = [*self.axes.values()]
        whole = all(isinstance(a, int) for a in actual)
        floor = _floor_division()
        for s in symbols:
            value = int(self.sizes[0][s])
            if whole:
                yield s + (int(actual[0]) - value)
                if actual[0] and value % actual[0] == 0:
                    yield floor(s, value // actual[0])
                if value and actual[0] % value == 0:
                    yield s * (actual[0] // value)
                for by in range(2, 65):
                    yield floor(s, by)
                    yield floor(s + by - 1, by)
            else:
                for f in (s, 1 / s, sympy.sqrt(s), 1 / sympy.sqrt(s), sympy.log(s)):
                    worth = float(f.xreplace(self.sizes[0]))
                    yield f * sympy.Float(actual[0] / worth) if worth else f
        if whole:
            for s in symbols:
                for t in symbols:
                    yield s * t
                    yield s + t
                    yield floor(s, t)
                    yield s - t


def _floor_division() -> Any:
    from torch.utils._sympy.functions import FloorDiv

    return FloorDiv


def _expression(value: Any) -> Any:
    """A size or a number as a sympy expression."""
    import sympy
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.expr
    if isinstance(value, float):
        return sympy.Float(value, 17) if math.isfinite(value) else sympy.sympify(value)
    return sympy.sympify(value)


def _plain(value: Any) -> Any:
    """A number of Python where it is one."""
    if value.is_Integer:
        return int(value)
    return float(value) if value.is_number else value


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _has_tensor(value: Any) -> bool:
    import torch

    if isinstance(value, (tuple, list)):
        return any(map(_has_tensor, value))
    return isinstance(value, torch.Tensor)


def _scalars(exports: Sequence[_Export]) -> list[tuple[str, ScalarKind, list[float]]]:
    """The numbers of the constructor, with their values at each shape set."""
    kinds: dict[type, ScalarKind] = {bool: "bool", int: "int", float: "float"}
    first = exports[0].init_args
    places = [n for n, value in enumerate(first) if type(value) in kinds]
    return [
        (f"scalar{k}", kinds[type(first[n])], [e.init_args[n] for e in exports])  # type: ignore[index, misc]
        for k, n in enumerate(places)
    ]


def _used(nodes: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """Without what no output depends on."""
    needed = {id(o) for o in outputs}
    kept = []
    for node in reversed(nodes):
        if id(node) in needed:
            kept.append(node)
            needed.update(id(i) for i in node.inputs)
    return kept[::-1]

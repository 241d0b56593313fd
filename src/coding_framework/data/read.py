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
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coding_framework.data.graph import Graph, Node, ScalarKind, Symbol, TensorType
from coding_framework.errors import UnreadableError as UnreadableError
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


MOST_LAYERS = 40
"""Of a module whose sizes are symbols while it is exported: their expressions grow with each layer
that makes an image smaller, and so does the time (DenseNet-121: minutes). A larger one is exported
at numbers alone, and these are looked up."""


def read(task: Task) -> Graph:
    """The graph of a task's module. Raises UnreadableError with what has no graph, and whatever the
    module raises where it is made."""
    lengths = _Lengths(task)
    if lengths.layers > MOST_LAYERS:
        return lengths.at_real_size(_read_by_numbers(task, lengths))
    try:
        graph = _read_by_symbols(task, lengths)
    except UnreadableError as first:
        try:
            graph = _read_by_numbers(task, lengths)
        except UnreadableError:
            raise first from None
    return lengths.at_real_size(graph)


def _read_by_symbols(task: Task, lengths: _Lengths) -> Graph:
    """Exported at one shape set where no number can be a size, at two where none is, else at all:
    an export takes half a second."""
    exports = [_Export(task, task.cases[0], lengths.varying)]
    if exports[0].holds_for(lengths):
        return _SideBySide(task, exports).graph()
    others = lengths.cases[1:]
    other = next(filter(lengths.vary_in, others), None)
    if other is not None:
        others.remove(other)
        exports.append(_Export(task, other, lengths.varying))
        together = _SideBySide(task, exports)
        with suppress(UnreadableError):
            graph = together.graph()
            if not together.looked_up:
                return graph
    exports += [_Export(task, case, lengths.varying) for case in others]
    return _SideBySide(task, _alike(exports)).graph()


def _read_by_numbers(task: Task, lengths: _Lengths) -> Graph:
    exports = [_Export(task, case, frozenset()) for case in lengths.cases]
    return _SideBySide(task, _alike(exports)).graph()


def _alike(exports: list[_Export]) -> list[_Export]:
    """Without the one of at least four that does other operations: where a size is 1, PyTorch may
    leave some out. Where more differ, all stay, and are refused."""
    first, *_ = operations = [[str(n.target) for n in e.nodes] for e in exports]
    alike = [e for e, own in zip(exports, operations, strict=True) if own == first]
    return alike if 3 <= len(alike) == len(exports) - 1 else exports


Axis = tuple[int, int]
"""(which of the tensors that a kernel is given, which axis of it)."""


class _Lengths:
    """The axes of all tensors that a kernel is given, at all shape sets; the first one of the task
    comes first. A number that is looked up must be right at each: at a few, others are too."""

    def __init__(self, task: Task) -> None:
        self.cases = _all_cases(task)
        made = [_Made(task, case) for case in self.cases]
        self.init_args = [m.init_args for m in made]
        self.layers = sum(not list(m.children()) for m in made[0].model.modules())
        shapes = [
            [*(spec.shape for spec in case.inputs), *(tuple(p.shape) for p in m.state.values())]
            for case, m in zip(self.cases, made, strict=True)
        ]
        if len({tuple(map(len, together)) for together in shapes}) > 1:
            raise UnreadableError(
                "the module has other parameters at other sizes: the number of its layers is a "
                "size, and no kernel is right for all"
            )
        axes = {
            (tensor, axis): sizes
            for tensor, together in enumerate(zip(*shapes, strict=True))
            for axis, sizes in enumerate(zip(*together, strict=True))
        }
        self.axes = {axis: sizes for axis, sizes in axes.items() if _vary(sizes)}
        self.varying = frozenset(self.axes)

    def vary_in(self, case: TestCase) -> bool:
        """Whether all that varies at all is other at this shape set than at the first: a number
        that is the same at both is none of the sizes."""
        place = self.cases.index(case)
        numbers = [given for given in zip(*self.init_args, strict=True) if _vary(given)]
        return all(sizes[place] != sizes[0] for sizes in (*self.axes.values(), *numbers))

    def at_real_size(self, graph: Graph) -> Graph:
        """The graph with the sizes of the second shape set, which is a GPU's main one where the
        task has any: by them the form of a kernel is chosen."""
        place = min(1, len(self.cases) - 1)
        tensors = {argument.name: number for number, argument in enumerate(graph.arguments)}
        numbers = _numbers(self.init_args[place])
        real = {}
        for symbol in graph.symbols:
            if symbol.axis < 0:
                real[symbol.name] = numbers[symbol.argument]
            elif sizes := self.axes.get((tensors[symbol.argument], symbol.axis)):
                real[symbol.name] = sizes[place]
        return replace(graph, sizes={**graph.sizes, **real})


def _vary(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values)


class _Made:
    """A task's module on the meta device, at one shape set."""

    def __init__(self, task: Task, case: TestCase) -> None:
        import torch

        namespace = run_reference(task.reference)
        self.init_args = tuple(case.init_args or task.init_args)
        with torch.device("meta"), recorded_definitions() as definitions:
            self.model = make_model(namespace["Model"], self.init_args)
        _with_own_tensors(self.model, namespace["Model"], self.init_args)
        self.state = definitions.parameters(self.model)


def _all_cases(task: Task) -> list[TestCase]:
    """Each shape set once: the first one, then those of real size, which differ from it in most."""
    found: list[TestCase] = []
    known: list[tuple[Any, ...]] = []
    for case in (task.cases[0], *task.gpu_cases, *task.cases[1:]):
        asked = ([spec.shape for spec in case.inputs], case.init_args)
        if asked not in known:
            known.append(asked)
            found.append(case)
    return found


class _Export:
    """A task's module exported at one shape set."""

    def __init__(self, task: Task, case: TestCase, varying: frozenset[Axis]) -> None:
        import sympy
        import torch
        from torch.export import Dim, default_decompositions, export

        made = _Made(task, case)
        model, state = made.model, made.state
        self.init_args = made.init_args
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

        axes = tuple(
            {a: Dim.AUTO if (tensor, a) in varying else Dim.STATIC for a in range(t.dim())}
            for tensor, t in enumerate(given)
        )
        self.varying = varying
        table: Any = default_decompositions()
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
        self.nodes = [
            node
            for node in self.program.graph.nodes
            if node.op == "call_function" and _has_tensor(node.meta.get("val"))
        ]
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

    def holds_for(self, lengths: _Lengths) -> bool:
        """Whether no number in it can be a size: the constructor's numbers are the same at all
        shape sets, and each axis that varies is a symbol."""
        if _vary(lengths.init_args):
            return False
        for tensor, axis in self.varying:
            if _expression(self.arguments[tensor].meta["val"].shape[axis]).is_number:
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
        kept_out = {n: module._buffers.get(n) for n in module._non_persistent_buffers_set}
        for name, value in {**vars(module), **kept_out}.items():
            if isinstance(value, torch.Tensor):
                yield name, value

    if any(any(own(module)) for module in model.modules()):
        with torch.device("cpu"):
            made = make_model(kind, init_args)
        for module, there in zip(model.modules(), made.modules(), strict=True):
            for name, value in list(own(there)):
                if name in module._buffers:
                    module._buffers[name] = value.detach()
                else:
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
        self.numbers: dict[tuple[Any, ...], Any] = {}
        self.renaming: list[dict[Any, Any]] = [{} for _ in exports]
        """From an export's own symbols to ours."""
        self.sizes: list[dict[Any, Any]] = [{} for _ in exports]
        """What our symbols are worth at each shape set."""
        self.reals: dict[tuple[float, ...], Any] = {}
        """The same of the constructor's numbers that are no whole ones."""
        self.axes: dict[tuple[int, ...], Any] = {}
        """Numbers at each shape set -> the symbol that has them."""
        self.looked_up = False
        """Whether a number that the exports have no expression for is one of ours."""

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
        together = zip(*(e.nodes for e in self.exports), strict=True)
        nodes = [self._node(exported) for exported in together]
        outputs = tuple(self._argument([n] * len(self.exports)) for n in self.first.outputs)
        if any(not isinstance(o, Node) for o in outputs):
            raise UnreadableError("the module returns a number and no tensor: return a tensor")
        return Graph(
            arguments=tuple(arguments),
            scalars=tuple((name, kind) for name, kind, _ in self.scalars),
            symbols=tuple(self.symbols.values()),
            nodes=tuple(_used(nodes, outputs)),
            outputs=outputs,
            sizes={str(symbol): _plain(value) for symbol, value in self.sizes[0].items()},
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

    def _node(self, together: Sequence[Any]) -> Node:
        first = together[0]
        value = first.meta.get("val")
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
            if isinstance(first.meta.get("val"), bool):
                return self._argument([n.meta["val"] for n in given])
            if first in self.found:
                return self.found[first]
            return self._number([_expression(_value(n)) for n in given])
        if isinstance(first, (tuple, list)):
            return [self._argument(parts) for parts in zip(*given, strict=True)]
        if isinstance(first, torch.dtype):
            return _dtype(first)
        if isinstance(first, bool) or first is None or isinstance(first, str):
            if any(g != first for g in given):
                raise UnreadableError(f"it is {first} at one size and something else at others")
            return first
        if isinstance(first, (int, float, torch.SymInt, torch.SymFloat)):
            return self._number([_expression(_value(g)) for g in given])
        return None  # a device, a layout or a memory format

    def _type(self, metas: Sequence[Any]) -> TensorType:
        sizes = zip(*(m.shape for m in metas), strict=True)
        shape = tuple(self._number([_expression(s) for s in size]) for size in sizes)
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
        actual = [self._worth(g, e) for g, e in zip(given, self.exports, strict=True)]
        if all(isinstance(a, float) and math.isnan(a) for a in actual):
            return math.nan
        for expression in ours:
            if self._right(expression, actual):
                return _plain(expression)
        self.looked_up = True
        if all(isinstance(a, int) for a in actual):
            found = _whole_number(self.axes, tuple(actual))
            if found is not None:
                self.axes.setdefault(tuple(actual), found)
        else:
            known: dict[tuple[float, ...], Any] = {**self.reals}
            known.update({tuple(map(float, k)): s for k, s in self.axes.items()})
            found = _real_number(known, actual)
        if found is None:
            raise UnreadableError(
                f"the number {actual[0]} is {', '.join(map(str, actual[1:]))} at other sizes, and "
                "follows from no axis of the arguments and no number of the constructor"
            )
        return found

    def _worth(self, expression: Any, export: _Export) -> Any:
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


def _whole_number(axes: Mapping[tuple[int, ...], Any], actual: tuple[int, ...]) -> Any:
    """The simplest expression of one axis or two that is worth these numbers; None: there is none.

    axes: numbers at each shape set -> the symbol that has them.
    """
    floor = _floor_division()
    if actual in axes:
        return axes[actual]
    own = [(symbol, list(zip(actual, values, strict=True))) for values, symbol in axes.items()
           if len(set(values)) > 1]  # fmt: skip
    for symbol, pairs in own:
        value, length = pairs[0]
        if length and value % length == 0 and all(a == v * (value // length) for a, v in pairs):
            return symbol * (value // length)
    for rounded_up in (False, True):
        for symbol, pairs in own:
            for by in _divisors(pairs[0]):
                more = by - 1 if rounded_up else 0
                if all(a == (v + more) // by for a, v in pairs):
                    return floor(symbol + more, by)
    for symbol, pairs in own:
        if len(apart := {a - v for a, v in pairs}) == 1:
            return symbol + apart.pop()
    for symbol, pairs in own:
        for by in _divisors(pairs[0]):
            for more in (sign * m for m in range(1, 13) for sign in (-1, 1)):
                if all(a == (v + more) // by for a, v in pairs):
                    return floor(symbol + more, by)
    for values, symbol in axes.items():
        for others, other in axes.items():
            triples = list(zip(actual, values, others, strict=True))
            if all(a == v * o for a, v, o in triples):
                return symbol * other
            if all(o and a == v // o and v % o == 0 for a, v, o in triples):
                return floor(symbol, other)
            if all(a == v + o for a, v, o in triples):
                return symbol + other
    return None


def _divisors(pair: tuple[int, int]) -> range:
    """By what a length may have been divided, to be a number."""
    value, length = pair
    by = round(length / value) if value else 0
    return range(max(2, by - 2), max(2, by + 3))


def _real_number(axes: Mapping[tuple[float, ...], Any], actual: Sequence[Any]) -> Any:
    """The same for numbers that are not whole: a factor times a function of one axis."""
    import sympy

    functions: Sequence[tuple[Callable[[float], float], Callable[[Any], Any]]] = (
        (lambda v: v, lambda s: s),
        (lambda v: 1 / v, lambda s: 1 / s),
        (math.sqrt, sympy.sqrt),
        (lambda v: 1 / math.sqrt(v), lambda s: 1 / sympy.sqrt(s)),
        (math.log, sympy.log),
        (lambda v: v**-0.25, lambda s: s ** sympy.Rational(-1, 4)),
        (lambda v: 1 / (v - 1), lambda s: 1 / (s - 1)),
        (lambda v: 1 / (1 - v), lambda s: 1 / (1 - s)),
        (lambda v: 1 - v, lambda s: 1 - s),
        (lambda v: v - 1, lambda s: s - 1),
    )
    for values, symbol in axes.items():
        if len(set(values)) == 1:
            continue
        for number, expression in functions:
            try:
                worth = [number(v) for v in values]
            except (ValueError, ZeroDivisionError):
                continue
            if not worth[0] or isinstance(worth[0], complex):
                continue
            factor = float(actual[0]) / worth[0]
            if all(
                math.isclose(a, factor * w, rel_tol=1e-9)
                for a, w in zip(actual, worth, strict=True)
            ):
                plain = math.isclose(factor, 1.0, rel_tol=1e-12)
                made = expression(symbol)
                return made if plain else made * sympy.Float(factor, 17)
    for values, symbol in axes.items():
        if len({round(a - v, 12) for a, v in zip(actual, values, strict=True)}) == 1:
            return symbol + sympy.Float(actual[0] - values[0], 17)
    return None


def _floor_division() -> Any:
    from torch.utils._sympy.functions import FloorDiv

    return FloorDiv


def _value(given: Any) -> Any:
    """What a node of the export is worth, or the number itself."""
    from torch import fx

    return given.meta["val"] if isinstance(given, fx.Node) else given


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


def _numbers(init_args: Sequence[Any]) -> dict[str, Any]:
    """The numbers among the constructor's arguments, by what a kernel calls them."""
    found = [value for value in init_args if type(value) in (bool, int, float)]
    return {f"scalar{number}": value for number, value in enumerate(found)}


def _scalars(exports: Sequence[_Export]) -> list[tuple[str, ScalarKind, list[Any]]]:
    """The numbers of the constructor, with their values at each shape set."""
    kinds: dict[type, ScalarKind] = {bool: "bool", int: "int", float: "float"}
    first, *others = (_numbers(e.init_args) for e in exports)
    return [
        (name, kinds[type(value)], [value, *(other[name] for other in others)])
        for name, value in first.items()
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

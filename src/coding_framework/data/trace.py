"""A module at one shape set as a graph of ATen operations: its forward runs once on tensors
without values, and each operation that has no lowering is taken apart where it is met.

    source --made on the meta device--> module --make_fx, parameters as inputs--> ATen graph
"""

from __future__ import annotations

import functools
import inspect
import linecache
import logging
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from coding_framework.errors import UnreadableError
from coding_framework.reference_model import (
    REFERENCE_FILE,
    make_model,
    recorded_definitions,
    run_reference,
    tensors_of,
)
from coding_framework.types import Task, TestCase

RECURRENT = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
KEPT_WHOLE = (
    *RECURRENT,
    "linear.default", "matmul.default", "einsum.default", "layer_norm.default",
    "group_norm.default", "dropout.default", "gelu.default", "silu.default", "mish.default",
    "softplus.default", "elu.default", "leaky_relu.default", "hardtanh.default",
    "hardsigmoid.default", "hardswish.default", "log_sigmoid.default", "softmax.int",
    "log_softmax.int", "_softmax.default", "_log_softmax.default", "_safe_softmax.default",
    "logsumexp.default", "selu.default", "celu.default", "relu6.default", "softshrink.default",
    "hardshrink.default", "threshold.default", "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default", "_adaptive_avg_pool2d.default",
    "_adaptive_avg_pool3d.default", "batch_norm.default", "instance_norm.default", "prelu.default",
    "var.correction", "std.correction", "var_mean.correction", "pixel_shuffle.default",
    "lerp.Tensor", "lerp.Scalar", "addcmul.default", "addcdiv.default", "rms_norm.default",
    "tril.default", "triu.default",
)  # fmt: skip
"""Operations that PyTorch could take apart and that have a lowering of their own."""


Axis = tuple[int, int]
"""(which of the tensors that a kernel is given, which axis of it)."""


class Made:
    """A task's module on the meta device, at one shape set."""

    def __init__(self, task: Task, case: TestCase) -> None:
        import torch

        self.kind = run_reference(task.reference)["Model"]
        self.source = task.reference
        self.case = case
        self.init_args = tuple(case.init_args or task.init_args)
        with torch.device("meta"), recorded_definitions() as definitions:
            self.model = make_model(self.kind, self.init_args)
        self.has_own_tensors = any(any(_own(m)) for m in self.model.modules())
        if self.has_own_tensors:
            _with_own_tensors(self.model, self.kind, self.init_args)
        self.state = definitions.parameters(self.model)
        self.given = [(s.shape, getattr(torch, s.dtype)) for s in case.inputs]
        self.given += [(tuple(p.shape), p.dtype) for p in self.state.values()]
        """Shape and dtype of each tensor that a kernel is given."""

    @property
    def names(self) -> list[str]:
        """What `forward` calls its inputs, and the module its parameters."""
        count = len(self.case.inputs)
        named = [
            p.name
            for p in inspect.signature(self.model.forward).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        inputs = [*named, *(f"input{k}" for k in range(len(named), count))][:count]
        return [*inputs, *self.state]

    def __call__(self, *given: Any, anew: bool = False) -> tuple[Any, ...]:
        """The module's outputs, of inputs and parameters. anew: its constructor runs first, so that
        its own tensors are results of operations."""
        import torch

        model = make_model(self.kind, self.init_args) if anew else self.model
        count = len(self.case.inputs)
        parameters = dict(zip(self.state, given[count:], strict=True))
        return tensors_of(torch.func.functional_call(model, parameters, given[:count]))


class Trace:
    """The operations of a module at one shape set. Axes of `symbolic` are symbols; where the module
    needs their number, numbers. anew: the constructor is traced too. Raises UnreadableError."""

    def __init__(
        self, made: Made, symbolic: frozenset[Axis] = frozenset(), *, anew: bool = False
    ) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.made, self.symbolic = made, symbolic
        _show_lines_of(made.source)
        shape_env = ShapeEnv(duck_shape=False) if symbolic else None
        fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)
        with _quiet(), torch.no_grad():
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                given = [_without_values(fake, n, *g, symbolic) for n, g in enumerate(made.given)]
                self.module = _traced(made, given, fake, anew)
            except UnreadableError:
                raise
            except Exception as e:
                raise UnreadableError(_why_not(e)) from e
            finally:
                torch.backends.mha.set_fastpath_enabled(True)
        _simplify(self.module.graph)
        nodes = list(self.module.graph.nodes)
        self.arguments = [n for n in nodes if n.op == "placeholder"]
        self.constants = [n for n in nodes if n.op == "get_attr"]
        self.nodes = [n for n in nodes if n.op == "call_function" and has_tensor(n.meta.get("val"))]
        (last,) = (n for n in nodes if n.op == "output")
        self.outputs: list[Any] = list(last.args[0])
        """The nodes that the module returns."""
        self.values = self.values_at(made)
        self.guards = [guard.expr for guard in shape_env.guards] if shape_env else []
        """What the module, or PyTorch, asked of the symbols: the trace is that of these answers."""

    def constant(self, node: Any) -> Any:
        """The tensor that a node of `constants` is."""
        return getattr(self.module, node.target)

    def values_at(self, made: Made) -> dict[Any, Any]:
        """Of each symbol that is an axis, and of expressions of them that are one."""
        import sympy

        return {
            size.node.expr: sympy.Integer(actual)
            for node, (shape, _) in zip(self.arguments, made.given, strict=True)
            for size, actual in zip(node.meta["val"].shape, shape, strict=True)
            if not expression(size).is_number
        }

    def holds_for(self, others: Sequence[Made]) -> bool:
        """Whether no number in it can be a size: the constructor's numbers are the same at all
        shape sets, and each axis that varies is a symbol."""
        shapes = [node.meta["val"].shape for node in self.arguments]
        return all(made.init_args == self.made.init_args for made in others) and not any(
            expression(shapes[tensor][axis]).is_number for tensor, axis in self.symbolic
        )

    def answers_for(self, others: Sequence[Made]) -> bool:
        """Whether what was asked of the symbols has the same answers at all shape sets."""
        import sympy

        return not any(
            guard.xreplace(self.values_at(made)) == sympy.false
            for made in others
            for guard in self.guards
        )


def _without_values(
    fake: Any, number: int, shape: Sequence[int], dtype: Any, symbolic: frozenset[Axis]
) -> Any:
    """A tensor that has no memory, with symbols for some of its axes."""
    import torch
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    kinds = [
        DimDynamic.DYNAMIC if (number, axis) in symbolic else DimDynamic.STATIC
        for axis in range(len(shape))
    ]
    if DimDynamic.DYNAMIC not in kinds:
        with fake:
            return torch.empty(tuple(shape), dtype=dtype)
    return fake.from_tensor(
        torch.empty(tuple(shape), dtype=dtype),
        source=ConstantSource(f"given{number}"),
        symbolic_context=StatelessSymbolicContext(
            dynamic_sizes=kinds, constraint_sizes=[None] * len(shape)
        ),
    )


def _traced(made: Made, given: Sequence[Any], fake: Any, anew: bool) -> Any:
    """The graph of what the module does with these tensors: without writes into tensors, and of the
    operations that have a lowering, as far as they can be taken apart."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
    from torch.fx import traceback
    from torch.fx.experimental.proxy_tensor import make_fx

    table = _decompositions()

    class TakingApart(FunctionalTensorMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if (line := _running_line()) is not None:
                traceback.current_meta["stack_trace"] = line
            if func in table:
                with self:
                    result = table[func](*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
            return super().__torch_dispatch__(func, types, args, kwargs)

    def without_writes(*tensors: Any) -> list[Any]:
        with TakingApart(pre_dispatch=True, export=True, _allow_token_discovery=True):
            outputs = made(*map(FunctionalTensor.to_functional, tensors), anew=anew)
            return [
                one.from_functional() if isinstance(one, FunctionalTensor) else one
                for one in outputs
            ]

    with ExitStack() as stack:
        stack.enter_context(fake)
        stack.enter_context(_shapes_alone())
        stack.enter_context(traceback.preserve_node_meta())
        if fake.shape_env is not None:
            stack.enter_context(enable_python_dispatcher())
        return make_fx(without_writes, pre_dispatch=True, _allow_non_fake_inputs=True)(*given)


@contextmanager
def _shapes_alone() -> Iterator[None]:
    """Inside the block recurrent layers and batch norms give tensors of the right shapes at once:
    PyTorch runs all their steps for it, also where no tensor has values."""
    import torch

    def normed(
        x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *_: float
    ) -> tuple[Any, ...]:
        own = (x.new_empty(x.shape[1] if training else 0) for _ in range(2))
        return torch.empty_like(x), *own, torch.empty_like(mean), torch.empty_like(var)

    def shaped(
        x: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Any, ...]:  # fmt: skip
        states = hx if isinstance(hx, (list, tuple)) else [hx]
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        return x.new_empty((*x.shape[:-1], width)), *(h.new_empty(h.shape) for h in states)

    operations = [getattr(torch.ops.aten, name.partition(".")[0]).input for name in RECURRENT]
    own = [dict(one.py_kernels) for one in operations]
    norm = torch.ops.aten._native_batch_norm_legit_functional.default
    known = torch._decomp.decomposition_table
    before = known[norm]
    try:
        known[norm] = normed
        for one in operations:
            one.py_kernels |= dict.fromkeys(one.py_kernels, shaped)
            one._dispatch_cache.clear()
        yield
    finally:
        known[norm] = before
        for one, kernels in zip(operations, own, strict=True):
            one.py_kernels |= kernels
            one._dispatch_cache.clear()


_SAME = ("clone", "alias", "detach", "lift_fresh_copy", "contiguous")


def _simplify(graph: Any) -> None:
    """Copies of a tensor are the tensor itself: PyTorch makes them at some sizes and not at others.
    What is written over a whole tensor stands instead of it. What no output depends on goes."""
    for node in graph.nodes:
        operation = str(node.target).removeprefix("aten.").partition(".")[0]
        if operation in _SAME:
            node.replace_all_uses_with(node.args[0])
        elif operation == "copy":
            source, made = node.args[1].meta["val"], node.meta["val"]
            if (source.shape, source.dtype) == (made.shape, made.dtype):
                node.replace_all_uses_with(node.args[1])
    graph.eliminate_dead_code()


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """How PyTorch takes operations apart, but those that are kept whole."""
    import torch
    from torch.export import default_decompositions

    table: Any = default_decompositions()
    for name in KEPT_WHOLE:
        base, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, base, None), overload, None), None)
    return {**dict(table.items()), torch.ops.aten.bincount.default: _counts}


def _counts(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """`bincount` with `minlength` places, as a sum by index: its own length depends on values.
    Inputs with larger values have an output of another shape, and are not judged."""
    import torch

    if weights is not None or minlength == 0:
        return NotImplemented
    places = torch.zeros(minlength, dtype=torch.int64, device=x.device)
    return places.index_put((x,), torch.ones_like(x, dtype=torch.int64), accumulate=True)


def _running_line() -> str | None:
    """The line of the module that is running, with its number."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == REFERENCE_FILE:
            return f"line {frame.f_lineno}: {_line(frame.f_lineno)}"
        frame = frame.f_back
    return None


def _own(module: Any) -> Iterator[tuple[str, Any]]:
    """The tensors that a module keeps outside its parameters and lasting buffers."""
    import torch

    kept_out = {n: module._buffers.get(n) for n in module._non_persistent_buffers_set}
    for name, value in {**vars(module), **kept_out}.items():
        if isinstance(value, torch.Tensor):
            yield name, value


def _with_own_tensors(model: Any, kind: Any, init_args: Sequence[Any]) -> None:
    """Give a module's own tensors their values: they are no arguments of a kernel, and are written
    into it."""
    import torch

    with torch.device("cpu"):
        made = make_model(kind, init_args)
    for module, there in zip(model.modules(), made.modules(), strict=True):
        for name, value in list(_own(there)):
            if name in module._buffers:
                module._buffers[name] = value.detach()
            else:
                setattr(module, name, value.detach())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and logs of a trace, which are about a user's module."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _show_lines_of(source: str) -> None:
    """Lines of a reference can be shown: it is compiled under a name that is no file."""
    lines = source.splitlines(keepends=True)
    linecache.cache[REFERENCE_FILE] = (len(source), None, lines, REFERENCE_FILE)


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


def value_of(given: Any) -> Any:
    """What a node of the export is worth, or the number itself."""
    from torch import fx

    return given.meta["val"] if isinstance(given, fx.Node) else given


def expression(value: Any) -> Any:
    """A size or a number as a sympy expression."""
    import sympy
    import torch

    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.expr
    if isinstance(value, float):
        return sympy.Float(value, 17) if math.isfinite(value) else sympy.sympify(value)
    return sympy.sympify(value)


def has_tensor(value: Any) -> bool:
    import torch

    if isinstance(value, (tuple, list)):
        return any(map(has_tensor, value))
    return isinstance(value, torch.Tensor)

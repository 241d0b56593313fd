"""The naive kernel of a problem: one operation a launch, through memory, as eager PyTorch runs it.
A user's own kernel is held against it where eager is not timed.

    torch.fx graph of the module -> values with sizes and strides -> a kernel an operation

Elementwise operations with broadcasting, reductions, softmax, matrix products, permutations and
parameters are known. Where a module does something else there is no such kernel. What the sizes are
is asked of the tensors when it runs: the source is made once at each shape set, and only one that
is the same at all of them is taken.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coding_framework.data.synthesis.op_table import UNARY_OPS
from coding_framework.types import Task, TestCase

_PLAIN = re.compile(r"(?:torch|F)\.(\w+)\(\{v\}\)")
_UNARY = {
    found[1]: op.c for op in UNARY_OPS.values() if (found := _PLAIN.fullmatch(op.torch)) is not None
} | {"neg": "-{v}", "square": "{v} * {v}", "reciprocal": "1.0f / {v}"}
_BINARY = {
    "add": "{v} + {o}",
    "sub": "{v} - {o}",
    "mul": "{v} * {o}",
    "div": "{v} / {o}",
    "truediv": "{v} / {o}",
    "pow": "powf({v}, {o})",
    "maximum": "fmaxf({v}, {o})",
    "minimum": "fminf({v}, {o})",
}
_POWERS = {2.0: "{v} * {v}", 3.0: "{v} * {v} * {v}", 0.5: "sqrtf({v})"}
"""Of exponents that PyTorch does not give to pow either."""
_USUAL: dict[str, tuple[float, ...]] = {
    "elu": (1.0,), "softplus": (1.0, 20.0), "hardtanh": (-1.0, 1.0),
}  # fmt: skip
"""Arguments after the tensor that modules name, at which the operation is the plain one. Options
(inplace, approximate) are no numbers."""
_JOINS = {
    "sum": ("0.0f", "a + e", "a"),
    "mean": ("0.0f", "a + e", "a / terms"),
    "prod": ("1.0f", "a * e", "a"),
    "amax": ("-INFINITY", "fmaxf(a, e)", "a"),
    "amin": ("INFINITY", "fminf(a, e)", "a"),
}
"""Where a reduction starts, how it joins an element `e`, and its result."""
_SOFTMAX = {"softmax": "expf(e - most) / total", "log_softmax": "e - most - logf(total)"}
_BLOCK_FROM = 64
"""Terms of a sum from which a block shares it; below, one thread has it."""
_FILE = """\
#include <torch/extension.h>

{kernels}
torch::Tensor forward({arguments}) {{
{body}
    return {last};
}}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
    m.def("forward", &forward);
}}
"""


@dataclass(frozen=True, slots=True)
class _Value:
    """A tensor as a kernel reads it."""

    name: str
    dims: tuple[str, ...]
    """The extent of each axis: "1", or the name of an int64_t that the host has."""
    strides: tuple[str, ...]
    shape: tuple[int, ...]
    """The extents at the shape set in hand."""

    def at(self, places: Sequence[str]) -> str:
        """The element at these coordinates; axes that are not there, and of extent 1, count 0."""
        own = places[len(places) - len(self.dims) :]
        terms = [
            place if stride == "1" else f"{place} * {stride}"
            for place, stride, dim in zip(own, self.strides, self.dims, strict=True)
            if dim != "1"
        ]
        return f"{self.name}[{' + '.join(terms) or '0'}]"

    @property
    def plain(self) -> bool:
        """Whether its elements lie in their order."""
        return self.strides == _strides(self.dims)


def _product(dims: Sequence[str]) -> str:
    return " * ".join(d for d in dims if d != "1") or "1"


def _strides(dims: Sequence[str]) -> tuple[str, ...]:
    products = (_product(dims[axis + 1 :]) for axis in range(len(dims)))
    return tuple(f"({p})" if "*" in p else p for p in products)


def _coordinates(name: str, dims: Sequence[str]) -> list[str]:
    """Of the place called `name` in a tensor of these extents."""
    found = []
    for axis, (dim, stride) in enumerate(zip(dims, _strides(dims), strict=True)):
        place = name if stride == "1" else f"{name} / {stride}"
        place = place if place == name else f"({place})"
        inner = _product(dims[:axis]) != "1"
        found.append("0" if dim == "1" else f"({place} % {dim})" if inner else place)
    return found


def operation_by_operation(task: Task) -> str | None:
    """The kernel's source; None where the module does something else. Runs the task's reference on
    no values."""
    cases = (*task.cases, *task.gpu_cases)
    if task.scalar_positions or any(s.dtype != "float32" for c in cases for s in c.inputs):
        return None
    blocks: dict[int, bool] = {}
    try:
        sources = {_Source(task, case, blocks).text() for case in cases}
    except Exception:  # whatever a user's module raises where it is run on no values
        return None
    return sources.pop() if len(sources) == 1 else None


@dataclass
class _Source:
    """The source at one shape set. `text` raises whatever the module does, KeyError for an
    operation that is not one of ours, ValueError for another use of one."""

    task: Task
    case: TestCase
    blocks: dict[int, bool]
    """Which reductions a block shares, by their kernel: the first shape set decides for all."""
    arguments: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)

    def text(self) -> str:
        import torch
        from torch import fx, nn

        from coding_framework.reference_model import (
            make_model,
            recorded_definitions,
            run_reference,
        )

        class Tracer(fx.Tracer):
            def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
                return False

        namespace = run_reference(self.task.reference)
        with torch.device("meta"), recorded_definitions() as definitions:
            given = self.case.init_args or self.task.init_args
            model = make_model(namespace["Model"], given)
            parameters = definitions.parameters(model)
        graph = Tracer().trace(model)
        inputs = iter([self.given(spec.shape) for spec in self.case.inputs])
        named = {name: self.given(tuple(p.shape)) for name, p in parameters.items()}
        if any(p.dtype is not torch.float32 for p in parameters.values()):
            raise ValueError("a parameter is not float32")
        found: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op == "output":
                return self.file(found[node.args[0]])
            if node.op == "placeholder":
                found[node] = next(inputs)
            elif node.op == "get_attr":
                found[node] = named[str(node.target)]
            else:
                name = node.target if isinstance(node.target, str) else node.target.__name__
                values = fx.map_arg((node.args, dict(node.kwargs)), found.__getitem__)
                found[node] = self.operation(name, *values)
        raise ValueError("it returns nothing")

    def given(self, shape: tuple[int, ...]) -> _Value:
        """An argument of forward."""
        name = f"t{len(self.arguments)}"
        self.arguments.append(f"torch::Tensor {name}")
        dims = tuple("1" if n == 1 else f"{name}_{axis}" for axis, n in enumerate(shape))
        for axis, dim in enumerate(dims):
            if dim != "1":
                self.sizes.append(dim)
                self.body.append(f"    const int64_t {dim} = {name}.size({axis});")
        return _Value(name, dims, _strides(dims), shape)

    def file(self, last: Any) -> str:
        if not isinstance(last, _Value) or not last.plain or not self.kernels:
            raise ValueError("its result is none of a kernel's")
        return _FILE.format(
            kernels="\n".join(self.kernels),
            arguments=", ".join(self.arguments),
            body="\n".join(self.body),
            last=last.name,
        )

    def operation(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in _OPERATIONS:
            return _OPERATIONS[name](self, *args, **kwargs)
        if name in _JOINS:
            return self.reduction(name, *args, **kwargs)
        if name in _SOFTMAX:
            return self.softmax(name, *args, **kwargs)
        return self.elementwise(name, (*args, *kwargs.values()))

    # --- operations -------------------------------------------------------------------------------

    def elementwise(self, name: str, given: Sequence[Any]) -> _Value:
        binary = name in _BINARY
        operands, options = list(given[: 1 + binary]), given[1 + binary :]
        more = tuple(x for x in options if not (isinstance(x, bool) or x in (None, "none")))
        if more not in ((), _USUAL.get(name, ())):
            raise ValueError(f"{name} with {more}")
        template = _BINARY[name] if binary else _UNARY[name]
        if name == "pow" and operands[1] in _POWERS:
            operands, template = operands[:1], _POWERS[operands[1]]
        tensors = [x for x in operands if isinstance(x, _Value)]
        dims, shape = _broadcast(tensors)
        places = _coordinates("i", dims)
        reads = []
        for letter, x in zip("vo", operands, strict=False):
            if isinstance(x, _Value):
                said = f"{x.name}[i]" if x.plain and x.shape == shape else x.at(places)
            elif isinstance(x, (int, float)) and math.isfinite(x):
                said = f"{float(x)!r}f"
            else:
                raise ValueError(f"{name} of {x}")
            reads.append(f"const float {letter} = {said};")
        return self.map(dims, shape, [*reads, f"out[i] = {template.format(v='v', o='o')};"])

    def reduction(
        self, name: str, x: _Value, dim: Any = None, keepdim: bool = False, **more: Any
    ) -> _Value:
        if more or not isinstance(keepdim, bool):
            raise ValueError(f"{name} with {keepdim}, {more}")
        axes = _axes(x, dim)
        start, join, finish = _JOINS[name]
        kept = [a for a in range(len(x.dims)) if a not in axes]
        terms = _product([x.dims[a] for a in axes])
        outer = dict(zip(kept, _coordinates("i", [x.dims[a] for a in kept]), strict=True))
        inner = dict(zip(axes, _coordinates("t", [x.dims[a] for a in axes]), strict=True))
        element = x.at([(outer | inner)[a] for a in range(len(x.dims))])
        left = range(len(x.dims)) if keepdim else kept
        dims = tuple("1" if a in axes else x.dims[a] for a in left)
        shape = tuple(1 if a in axes else x.shape[a] for a in left)
        many = math.prod(x.shape[a] for a in axes) >= _BLOCK_FROM
        block = self.blocks.setdefault(len(self.kernels), many)
        loop = [f"const float e = {element};", f"a = {join};"]
        declared = [f"const int64_t terms = {terms};", f"float a = {start};"]
        if not block:
            lines = [*declared, *_loop("0", "1", loop), f"out[i] = {finish};"]
            return self.map(dims, shape, lines)
        lines = [
            "__shared__ float parts[256];",
            *declared,
            *_loop("threadIdx.x", "256", loop),
            "parts[threadIdx.x] = a;",
            "__syncthreads();",
            "for (int half = 128; half > 0; half /= 2) {",
            "    if (threadIdx.x < half) {",
            "        const float a = parts[threadIdx.x], e = parts[threadIdx.x + half];",
            f"        parts[threadIdx.x] = {join};",
            "    }",
            "    __syncthreads();",
            "}",
            "a = parts[0];",
            f"if (threadIdx.x == 0) out[i] = {finish};",
        ]
        return self.map(dims, shape, lines, block=True)

    def softmax(self, name: str, x: _Value, dim: Any = None, **more: Any) -> _Value:
        """One thread a row, as the elements of a row are read three times."""
        if set(more) - {"dtype", "_stacklevel"} or more.get("dtype") is not None:
            raise ValueError(f"{name} with {more}")
        (axis,) = _axes(x, dim)
        rows = tuple("1" if a == axis else d for a, d in enumerate(x.dims))
        places = _coordinates("i", rows)
        places[axis] = "t"
        out = _Value("out", x.dims, _strides(x.dims), x.shape).at(places)
        loop = f"for (int64_t t = 0; t < {x.dims[axis]}; t++) "
        element = x.at(places)
        lines = [
            "float most = -INFINITY, total = 0.0f;",
            f"{loop}most = fmaxf(most, {element});",
            f"{loop}total += expf({element} - most);",
            f"{loop}{{",
            f"    const float e = {element};",
            f"    {out} = {_SOFTMAX[name]};",
            "}",
        ]
        return self.map(x.dims, x.shape, lines, count=rows)

    def product(self, a: _Value, b: _Value, bias: _Value | None = None) -> _Value:
        """Of the last two axes; those before them are broadcast."""
        if len(a.dims) < 2 or len(b.dims) < 2:
            raise ValueError("a product of a vector")
        outer, shape = _broadcast([_outer(a), _outer(b)])
        dims = (*outer, a.dims[-2], b.dims[-1])
        *batch, row, column = _coordinates("i", dims)
        start = "0.0f" if bias is None else bias.at([*batch, row, column])
        left, right = a.at([*batch, row, "t"]), b.at([*batch, "t", column])
        lines = [
            f"float a = {start};",
            *_loop("0", "1", [f"a += {left} * {right};"], a.dims[-1]),
            "out[i] = a;",
        ]
        return self.map(dims, (*shape, a.shape[-2], b.shape[-1]), lines)

    def linear(self, x: _Value, weight: _Value, bias: _Value | None = None) -> _Value:
        return self.product(x, _moved(weight, (1, 0)), bias)

    # --- kernels ----------------------------------------------------------------------------------

    def map(
        self, dims: Sequence[str], shape: Sequence[int], lines: Sequence[str], *,
        block: bool = False, count: Sequence[str] | None = None,
    ) -> _Value:  # fmt: skip
        """A thread, or a block, for each place of `count`, or of the result, whose extents `dims`
        are. The lines give `out` at `i`."""
        name = f"t{len(self.arguments) + len(self.kernels)}"
        text = "\n".join(lines)
        words = list(dict.fromkeys(re.findall(r"\w+", text)))
        tensors = [w for w in words if re.fullmatch(r"t\d+", w)]
        sizes = [s for s in self.sizes if s in words]
        places = "blockIdx.x" if block else "blockIdx.x * int64_t(blockDim.x) + threadIdx.x"
        parameters = ", ".join(
            [*(f"const float* {t}" for t in tensors), "float* out", "int64_t n",
             *(f"int64_t {s}" for s in sizes)]
        )  # fmt: skip
        self.kernels.append(
            f"__global__ void {name}_kernel({parameters}) {{\n"
            f"    const int64_t i = {places};\n"
            "    if (i < n) {\n" + "".join(f"        {line}\n" for line in lines) + "    }\n}\n"
        )
        given = ", ".join(
            [*(f"{t}.data_ptr<float>()" for t in tensors), f"{name}.data_ptr<float>()",
             f"{name}_n", *sizes]
        )  # fmt: skip
        blocks = f"{name}_n" if block else f"({name}_n + 255) / 256"
        self.body += [
            f"    const int64_t {name}_n = {_product(dims if count is None else count)};",
            f"    auto {name} = torch::empty({{{', '.join(dims)}}}, t0.options());",
            f"    {name}_kernel<<<static_cast<int>({blocks}), 256>>>({given});",
        ]
        return _Value(name, tuple(dims), _strides(dims), tuple(shape))


def _loop(start: str, step: str, lines: Sequence[str], end: str = "terms") -> Iterator[str]:
    yield f"for (int64_t t = {start}; t < {end}; t += {step}) {{"
    yield from (f"    {line}" for line in lines)
    yield "}"


def _broadcast(values: Sequence[_Value]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Extents of what they give together. Raises ValueError where that is of no tensor."""
    rank = max(len(x.dims) for x in values)
    dims, shape = ["1"] * rank, [1] * rank
    for x in values:
        for axis, (dim, extent) in enumerate(zip(x.dims, x.shape, strict=True), rank - len(x.dims)):
            if dim != "1" and dims[axis] == "1":
                dims[axis], shape[axis] = dim, extent
            elif dim != "1" and shape[axis] != extent:
                raise ValueError(f"extents {shape[axis]} and {extent}")
    return tuple(dims), tuple(shape)


def _outer(x: _Value) -> _Value:
    return _Value(x.name, x.dims[:-2], x.strides[:-2], x.shape[:-2])


def _axes(x: _Value, dim: Any) -> list[int]:
    rank = len(x.dims)
    given = range(rank) if dim is None else (dim,) if isinstance(dim, int) else dim
    return sorted(operator.index(d) % rank for d in given)


def _moved(x: _Value, order: Sequence[int]) -> _Value:
    """The same memory with its axes in another order."""
    order = [o % len(x.dims) for o in order]
    dims, strides = (tuple(part[o] for o in order) for part in (x.dims, x.strides))
    return _Value(x.name, dims, strides, tuple(x.shape[o] for o in order))


def _transposed(x: _Value, one: int = -2, other: int = -1) -> _Value:
    order = list(range(len(x.dims)))
    order[one], order[other] = order[other], order[one]
    return _moved(x, order)


def _permuted(x: _Value, *order: Any) -> _Value:
    return _moved(x, order[0] if len(order) == 1 else order)


def _unsqueezed(x: _Value, dim: int) -> _Value:
    at = dim % (len(x.dims) + 1)
    return _Value(
        x.name, (*x.dims[:at], "1", *x.dims[at:]), (*x.strides[:at], "1", *x.strides[at:]),
        (*x.shape[:at], 1, *x.shape[at:]),
    )  # fmt: skip


def _attribute(x: _Value, name: str) -> _Value:
    if name not in ("T", "mT") or (name == "T" and len(x.dims) != 2):
        raise ValueError(name)
    return _transposed(x)


def _contiguous(source: _Source, x: _Value) -> _Value:
    if x.plain:
        return x
    read = f"out[i] = {x.at(_coordinates('i', x.dims))};"
    return source.map(x.dims, x.shape, [read])


_OPERATIONS: dict[str, Callable[..., _Value]] = {
    **dict.fromkeys(("matmul", "mm", "bmm"), _Source.product),
    "linear": _Source.linear,
    "addmm": lambda s, c, a, b: s.product(a, b, c),
    "contiguous": _contiguous,
    "getattr": lambda s, x, name: _attribute(x, name),
    "t": lambda s, x: _transposed(x),
    "transpose": lambda s, x, *axes: _transposed(x, *axes),
    "permute": lambda s, x, *order: _permuted(x, *order),
    "unsqueeze": lambda s, x, dim: _unsqueezed(x, dim),
}
"""What is not of the tables above. Permutations move nothing: the next kernel reads through
them."""

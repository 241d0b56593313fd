"""A trace in parts: a reference of one operation and the elementwise ones behind it, as a task."""

from __future__ import annotations

import hashlib
import inspect
import keyword
import math
import operator
import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from coding_framework.data.parts.calls import Call, Const, PartsError, Ref, Trace, Value, mapped
from coding_framework.data.parts.extents import Known, fraction, whole
from coding_framework.reference_model import recorded_definitions, run_reference
from coding_framework.types import PART, Split, Task, TensorSpec, TestCase

MOST_OPERATIONS = 5
"""Of a part: those before a reduction that are elementwise, it, and those that follow it so."""
_MOST_WRITTEN = 256
_NAMES = ("x", "y", "z", "w", "u", "v")
_ELEMENT_BY_ELEMENT = """
    add sub mul div true_divide pow rpow rsub rtruediv rdiv neg exp exp2 expm1 log log2 log10
    log1p sqrt rsqrt square abs sin cos tan tanh sinh cosh atan asin acos atan2 sigmoid relu
    relu6 gelu silu mish softplus softsign elu selu celu leaky_relu hardtanh hardswish
    hardsigmoid logsigmoid tanhshrink threshold clamp clamp_min clamp_max reciprocal erf erfc
    where masked_fill maximum minimum float double half to type_as lerp addcmul addcdiv sign
    floor ceil round trunc fmod remainder hypot xlogy nan_to_num dropout eq ne lt le gt ge and
    or xor invert logical_not logical_and logical_or bitwise_not bitwise_and bitwise_or isnan
    isinf deg2rad rad2deg
"""
_ELEMENTWISE = frozenset(_ELEMENT_BY_ELEMENT.split())
LIKES = ("zeros_like", "ones_like", "full_like", "empty_like")
_REDUCING = "sum mean amax amin prod norm vector_norm logsumexp softmax log_softmax var std cumsum"
_REDUCTIONS = frozenset(_REDUCING.split())
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "floordiv": "//", "mod": "%",
}  # fmt: skip


_MODULES = {"torch.special": torch.special, "torch.linalg": torch.linalg, "F": functional}
_SAID = {
    one: f"{prefix}.{name}"
    for prefix, module in _MODULES.items()
    for name, one in reversed(vars(module).items())
    if callable(one)
}
"""Functions by what calls them: the name of some is another than their own."""
_FACTORS = {"deg2rad": math.pi / 180, "rad2deg": 180 / math.pi}
"""Functions that are a multiple."""
_REVERSED = {"rsub": "-", "rpow": "**", "rtruediv": "/", "rdiv": "/"}
_SIGNS = {"__invert__": "~", "__neg__": "-", "neg": "-"}


@dataclass(frozen=True, slots=True)
class Part:
    """A task, and what its kernel is given in the whole."""

    task: Task
    tensors: tuple[int, ...]
    """Values, in the order of the kernel's tensors."""
    names: tuple[str, ...]
    """What the task's contract calls them."""
    numbers: tuple[str, ...]
    """C++ of the numbers behind them."""
    arguments: tuple[str, ...]
    """What the task's constructor calls these."""
    output: int
    calls: tuple[Call, ...]
    statements: tuple[tuple[str, str], ...]
    """(name, expression) of each line of its `forward`."""

    @property
    def key(self) -> str:
        """Equal for parts of the same function at the same sizes."""
        return hashlib.sha256(self.task.model_dump_json(exclude={"name"}).encode()).hexdigest()[:16]

    @property
    def makes(self) -> tuple[int, ...]:
        """The values of its operations."""
        return tuple(out for call in self.calls for out in call.outputs)


@dataclass(slots=True)
class _Group:
    calls: list[Call]
    outs: list[int]
    """What each makes that is used."""
    at: int
    """Place of the last one."""


def parted(
    trace: Trace, alone: Container[int] = (), handed: frozenset[int] = frozenset()
) -> list[Part]:
    """The parts in the order in which they run. alone: values whose makers are parts of their own,
    whatever stands before and behind them. handed: values of `inlined` that are parts too, and are
    given to those alone and to each other. Raises PartsError where a step cannot be a task."""
    handed |= _told(trace)
    inline = inlined(trace)
    parts = []
    for number, group in enumerate(_groups(trace, alone, handed)):
        apart = any(out in alone or out in handed for out in group.outs)
        own = inline - handed if apart else inline
        parts.append(_Writer(trace, group.calls, group.outs, number, own).part())
    return parts


def base_name(call: Call) -> str:
    """`add` for `add`, `add_`, `__add__`, `__iadd__` and `__radd__`."""
    name = call.name.strip("_")
    if call.name.startswith("__") and name[:1] == "i" and name[1:] in _OPERATORS:
        name = name[1:]
    if call.name in ("__radd__", "__rmul__"):
        name = name[1:]
    name = name.removeprefix("linalg_").removeprefix("special_")
    return {"truediv": "div", "true_divide": "div", "log_sigmoid": "logsigmoid"}.get(name, name)


def is_elementwise(call: Call) -> bool:
    return base_name(call) in _ELEMENTWISE or call.name in _ELEMENTWISE


def inlined(trace: Trace) -> frozenset[int]:
    """Values that no part hands to another: what depends on no tensor that is given or on its shape
    alone, and what is not floating. Each part that reads one makes it itself."""
    of_shapes = set(trace.constants)
    for call in trace.calls:
        computed = call.kind in ("compute", "view") and of_shapes.issuperset(call.refs)
        if call.name in LIKES or computed:
            of_shapes.update(call.outputs)
    made = {out for call in trace.calls for out in call.outputs}
    return frozenset(n for n in made if n in of_shapes or not trace.values[n].floating)


def _told(trace: Trace) -> frozenset[int]:
    """Whole numbers and booleans that the trace returns, and what shows them."""
    own, found, wanted = inlined(trace), set[int](), [*trace.outputs]
    while wanted:
        number = wanted.pop()
        maker = trace.maker(number)
        whole = number in own and not trace.values[number].floating
        if whole and number not in found and maker is not None and maker.refs:
            found.add(number)
            wanted += maker.refs if maker.kind != "compute" else ()
    return frozenset(found)


def counting(trace: Trace, number: int) -> tuple[int, int] | None:
    """(first, step) of a value of `torch.arange` that counts in whole numbers, the same ones at
    each shape set; None for another."""
    maker, value = trace.maker(number), trace.values[number]
    longest = max(value.seen, key=len, default=None) if value.rank == 1 else None
    if maker is None or maker.name != "arange" or longest is None or len(longest) < 2:
        return None
    first, step = float(longest[0]), float(longest[1] - longest[0])
    if value.dtype not in ("float32", "int64") or not (first.is_integer() and step.is_integer()):
        return None
    counted = first + step * torch.arange(len(longest), dtype=torch.float64)
    same = all(torch.equal(one.double(), counted[: len(one)]) for one in value.seen)
    return (int(first), int(step)) if same else None


def literals(trace: Trace) -> dict[int, tuple[float, ...]]:
    """Constants that are written down in the whole's host code: a few numbers, the same at each
    shape set."""
    found = {}
    for number in trace.constants:
        value = trace.values[number]
        first = value.seen[0]
        if value.dtype == "float32" and 0 < first.numel() <= _MOST_WRITTEN and all(
            one.shape == value.layouts[0].shape for one in value.layouts
        ) and all(torch.equal(first, other) for other in value.seen[1:]):  # fmt: skip
            found[number] = tuple(float(v) for v in first.flatten())
    return found


def _groups(trace: Trace, alone: Container[int], handed: Container[int]) -> list[_Group]:
    own = {number for number in inlined(trace) if number not in handed}
    uses = Counter(ref for call in trace.calls for ref in call.refs)
    uses.update(trace.outputs)
    groups: list[_Group] = []
    ends: dict[int, _Group] = {}
    for at, call in enumerate(trace.calls):
        used = [out for out in call.outputs if uses[out] and out not in own]
        if call.kind != "compute" or not call.refs or not used:
            continue
        if len(used) > 1:
            for out in used:
                ends[out] = _Group([call], [out], at)
                groups.append(ends[out])
            continue
        before = next(
            (
                ends[ref]
                for ref in call.refs
                if ref in ends
                and uses[ref] == 1
                and ref not in alone
                and used[0] not in alone
                and (ref in handed) == (used[0] in handed)
            ),
            None,
        )
        if before is not None and _follows(call, before.calls):
            before.calls.append(call)
            before.outs.append(used[0])
            before.at = at
            ends[used[0]] = before
        else:
            ends[used[0]] = _Group([call], used, at)
            groups.append(ends[used[0]])
    return sorted(groups, key=operator.attrgetter("at"))


def _follows(call: Call, calls: Sequence[Call]) -> bool:
    """Whether a call may be in a part behind these."""
    return len(calls) < MOST_OPERATIONS and (
        is_elementwise(call) or (base_name(call) in _REDUCTIONS and all(map(is_elementwise, calls)))
    )


# --- layers ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Layer:
    """A module of torch.nn in the place of a function of parameters."""

    text: str
    """`nn.Linear(in_features, out_features)`."""
    extents: dict[str, tuple[int, ...]]
    """Its arguments that are extents, by name."""
    parameters: tuple[int, ...]
    """In the order of the module's own."""


def _argument(call: Call, place: int, name: str, default: Any = None) -> Any:
    if name in call.kwargs:
        return call.kwargs[name]
    return call.args[place] if len(call.args) > place else Const((default,))


def _fixed(leaf: Any) -> Any:
    """What is the same at each shape set. Raises PartsError."""

    def value(one: Any) -> Any:
        if not isinstance(one, Const) or one.varies:
            raise PartsError("an argument of a layer differs from size to size")
        return one.values[0]

    return mapped(leaf, value)


def _layer(trace: Trace, call: Call) -> _Layer | None:
    """None where the function is none of a layer, or its weight no parameter."""
    given = range(trace.inputs, trace.inputs + trace.parameters)

    def parameter(place: int, name: str) -> int | None:
        leaf = _argument(call, place, name)
        return leaf.number if isinstance(leaf, Ref) and leaf.number in given else None

    name = base_name(call)
    if name == "linear" and (weight := parameter(1, "weight")) is not None:
        bias = parameter(2, "bias")
        shape = trace.values[weight]
        more = "" if bias is not None else ", bias=False"
        return _Layer(
            f"nn.Linear(in_features, out_features{more})",
            {"in_features": shape.extents(1), "out_features": shape.extents(0)},
            tuple(n for n in (weight, bias) if n is not None),
        )
    if (found := re.fullmatch(r"conv([123])d", name)) and (
        weight := parameter(1, "weight")
    ) is not None:
        bias, shape = parameter(2, "bias"), trace.values[weight]
        kernel = tuple(shape.layouts[0].shape[2:])
        if any(tuple(one.shape[2:]) != kernel for one in shape.layouts):
            raise PartsError("the window of a convolution differs from size to size")
        groups = _fixed(_argument(call, 6, "groups", 1))
        told = [f"in_channels, out_channels, {kernel if len(kernel) > 1 else kernel[0]}"]
        for place, key, usual in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1)):
            value = _fixed(_argument(call, place, key, usual))
            value = tuple(value) if isinstance(value, list) else value
            if value not in (usual, (usual,) * len(kernel)):
                told.append(f"{key}={value!r}")
        told += [f"groups={groups}"] if groups != 1 else []
        told += ["bias=False"] if bias is None else []
        channels = tuple(n * groups for n in shape.extents(1))
        return _Layer(
            f"nn.Conv{found[1]}d({', '.join(told)})",
            {"in_channels": channels, "out_channels": shape.extents(0)},
            tuple(n for n in (weight, bias) if n is not None),
        )
    if name == "embedding" and (weight := parameter(1, "weight")) is not None:
        shape = trace.values[weight]
        return _Layer(
            "nn.Embedding(num_embeddings, embedding_dim)",
            {"num_embeddings": shape.extents(0), "embedding_dim": shape.extents(1)}, (weight,),
        )  # fmt: skip
    if name == "layer_norm" and (weight := parameter(2, "weight")) is not None:
        bias, shape = parameter(3, "bias"), trace.values[weight]
        eps = _fixed(_argument(call, 4, "eps", 1e-5))
        if shape.rank == 1 and bias is not None:
            return _Layer(
                f"nn.LayerNorm(features, eps={eps})", {"features": shape.extents(0)}, (weight, bias)
            )
    if name == "group_norm" and (weight := parameter(2, "weight")) is not None:
        bias, shape = parameter(3, "bias"), trace.values[weight]
        eps, groups = (
            _fixed(_argument(call, 4, "eps", 1e-5)),
            _fixed(_argument(call, 1, "num_groups")),
        )
        if bias is not None:
            return _Layer(
                f"nn.GroupNorm({groups}, num_channels, eps={eps})",
                {"num_channels": shape.extents(0)}, (weight, bias),
            )  # fmt: skip
    return None


# --- a part's reference ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Writer:
    """Writes a part's reference and makes its task."""

    trace: Trace
    calls: list[Call]
    outs: list[int]
    number: int
    inline: frozenset[int]
    """Values that it makes itself."""
    names: dict[int, str] = field(default_factory=dict)
    tensors: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    numbers: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    """C++ of each number."""

    def part(self) -> Part:
        for call, out in zip(self.calls, self.outs, strict=True):
            self._write(call, out)
        output = self.outs[-1]
        *before, last = self.lines
        task = self._task(self._source([*before, "return " + last.partition(" = ")[2]]))
        parameters = self._check(task, output)
        return Part(
            task,
            (*self.tensors, *self.parameters),
            (*(self.names[number] for number in self.tensors), *parameters),
            tuple(self.told.values()),
            tuple(self.told),
            output,
            tuple(self.calls),
            tuple((name, text) for name, _, text in (line.partition(" = ") for line in self.lines)),
        )

    def _write(self, call: Call, out: int) -> None:
        try:
            layer = _layer(self.trace, call)
        except PartsError:
            layer = None  # as a function of its parameters
        if layer is not None:
            attribute = layer.text.split("(")[0].removeprefix("nn.").lower()
            text = layer.text
            for name, values in layer.extents.items():
                text = re.sub(rf"\b{name}\b", self._number(name, values), text)
            self.layers.append(f"self.{attribute} = {text}")
            self.parameters += layer.parameters
            text = f"self.{attribute}({self._text(_argument(call, 0, 'input'))})"
        else:
            text = self._call(call, out)
        name = f"t{len(self.lines)}"
        self.names[out] = name
        self.lines.append(f"{name} = {text}")

    def _call(self, call: Call, out: int) -> str:
        """A call as Python."""
        name, args = call.name, list(call.args)
        plain = base_name(call)
        if call.kind == "write":
            raise PartsError("a constant of its is written place by place")
        if name == "__getitem__":
            text = f"{self._text(args[0])}[{self._index(args[1])}]"
        elif name == "__get__":
            owner: Any = getattr(call.func, "__self__", None)
            text = f"{self._text(args[0])}.{owner.__name__}"
        elif (
            plain in _OPERATORS
            and len(args) == 2
            and not call.kwargs
            and (name.startswith("__") or getattr(torch, plain, None) is not call.func)
        ):
            left, right = map(self._text, args)
            text = f"({left} {_OPERATORS[plain]} {right})"
        elif plain in _REVERSED:
            right, left = map(self._text, args[:2])
            text = f"({left} {_REVERSED[plain]} {right})"
        elif name in _SIGNS:
            text = f"({_SIGNS[name]}{self._text(args[0])})"
        else:
            text = self._named(call)
        if len(call.outputs) > 1:
            text += f"[{call.outputs.index(out)}]"
        return text

    def _named(self, call: Call) -> str:
        name = call.name
        if name.endswith("_") and not name.startswith("_"):
            name = name.rstrip("_")  # in place: of a part nobody sees it
        kwargs = {
            k: v for k, v in call.kwargs.items()
            if k not in ("device", "inplace", "_stacklevel") and not _is_usual(call, k, v)
        }  # fmt: skip
        args = [*map(self._text, call.args), *(f"{k}={self._text(v)}" for k, v in kwargs.items())]
        if name in _FACTORS:
            return f"({args[0]} * {_FACTORS[name]!r})"
        if call.func in _SAID:
            return f"{_SAID[call.func]}({', '.join(args)})"
        of_tensor = hasattr(torch.Tensor, name) and call.args and isinstance(call.args[0], Ref)
        if of_tensor and getattr(torch, name, None) is not call.func:
            return f"{args[0]}.{name}({', '.join(args[1:])})"
        if callable(getattr(torch, name, None)):
            return f"torch.{name}({', '.join(args)})"
        raise PartsError(f"{call.name} is no function of torch by its name")

    def _index(self, leaf: Any) -> str:
        if isinstance(leaf, tuple):
            return ", ".join(map(self._index, leaf))
        if isinstance(leaf, slice):
            ends = (leaf.start, leaf.stop, leaf.step)
            texts = ["" if _is_none(e) else self._text(e) for e in ends]
            return f"{texts[0]}:{texts[1]}" + (f":{texts[2]}" if texts[2] else "")
        return self._text(leaf)

    def _text(self, leaf: Any) -> str:
        """An argument as Python."""
        if isinstance(leaf, Ref):
            return self._tensor(leaf.number)
        if isinstance(leaf, tuple | list):
            inner = ", ".join(map(self._text, leaf))
            if isinstance(leaf, list):
                return f"[{inner}]"
            return f"({inner},)" if len(leaf) == 1 else f"({inner})"
        if not isinstance(leaf, Const):
            return repr(leaf)
        first = leaf.values[0]
        if not leaf.varies:
            if isinstance(first, torch.dtype):
                return str(first)
            if first is Ellipsis:
                return "..."
            if isinstance(first, float) and first in (float("inf"), float("-inf")):
                return f'float("{first}")'
            if isinstance(first, bool | int | float | str | None):
                return repr(first)
            raise PartsError(f"an argument is a {type(first).__name__}")
        return f"self.{self._number('n', leaf.values)}"

    def _number(self, name: str, values: tuple[Any, ...]) -> str:
        """A number that `Model` is given, by its name."""
        for given, told in self.numbers.items():
            if told == values:
                return given
        while name in self.numbers or keyword.iskeyword(name):
            name += "_"
        known = known_extents(self.trace, before=self.calls[0].outputs[0])
        for tensor in self.tensors:  # views have extents of their own
            value = self.trace.values[tensor]
            for extents in map(value.extents, range(value.rank)):
                if (of_view := whole(extents, known)) is not None:
                    known.append(Known(of_view, extents))
        whole_number = all(type(v) is int for v in values)
        text = whole(values, known) if whole_number else fraction(values, known)
        if text is None:
            text = next((own for _, own, told in numbers(self.trace) if told == values), None)
        if text is None:
            raise PartsError(f"{values} are the values of a number whose origin is not found")
        self.numbers[name] = values
        self.told[name] = text
        return name

    def _tensor(self, number: int) -> str:
        if number in self.names:
            return self.names[number]
        maker = self.trace.maker(number)
        if number in self.inline and maker is not None and number not in literals(self.trace):
            text = self._call(maker, number)
            self.names[number] = text
            return text
        value = self.trace.values[number]
        wanted = re.sub(r"\W", "_", value.name or "")
        if not wanted or re.fullmatch(r"in(put)?\d+", wanted):
            wanted = _NAMES[len(self.tensors) % len(_NAMES)]
        while wanted in self.names.values() or keyword.iskeyword(wanted):
            wanted += "_"
        self.names[number] = wanted
        self.tensors.append(number)
        return wanted

    def _source(self, lines: Sequence[str]) -> str:
        init = [
            f"        self.{name} = {name}"
            for name in self.numbers
            if f"self.{name}" in "\n".join(lines)
        ]
        layers = [f"        {line}" for line in self.layers]
        body = ["        super().__init__()", *layers, *init]
        head = [f"    def __init__({', '.join(['self', *self.numbers])}):", *body, ""]
        given = ", ".join(["self", *(self.names[n] for n in self.tensors)])
        return "\n".join([
            "import torch", "import torch.nn as nn", "import torch.nn.functional as F", "", "",
            "class Model(nn.Module):", *(head if self.layers or self.numbers else []),
            f"    def forward({given}):", *(f"        {line}" for line in lines), "",
        ])  # fmt: skip

    def _task(self, source: str) -> Task:
        whole_task = self.trace.task
        cases = tuple(self._case(at, case) for at, case in enumerate(self.trace.cases))
        small = len(whole_task.cases)
        names = tuple(base_name(call) for call in self.calls)
        return Task(
            name=f"{whole_task.name}_part_{self.number + 1}",
            tier=whole_task.tier,
            family=PART,
            ops=names,
            description=", ".join(names),
            reference=source,
            init_args=cases[small].init_args if len(cases) > small else cases[0].init_args,
            cases=cases[:small],
            gpu_cases=cases[small:],
            split=Split.OUTSIDE,
            source=whole_task.source,
            licence=whole_task.licence,
        )

    def _case(self, at: int, case: TestCase) -> TestCase:
        specs = []
        for number in self.tensors:
            value = self.trace.values[number]
            low, high = _bounds(value, at)
            if value.spec:
                low, high = value.spec[at].low, value.spec[at].high
            specs.append(TensorSpec.model_validate({
                "name": self.names[number], "shape": value.layouts[at].shape,
                "dtype": value.dtype, "low": low, "high": high,
                "apart": value.spec[at].apart if value.spec else (),
            }))  # fmt: skip
        return TestCase(
            name=case.name,
            inputs=tuple(specs),
            init_args=tuple(values[at] for values in self.numbers.values()),
            reduction_length=case.reduction_length,
            shown=case.shown,
        )

    def _check(self, task: Task, output: int) -> list[str]:
        """That the part makes of what the whole made before it what the whole made; the names of
        its parameters. Raises PartsError."""
        names: list[str] = []
        for at, case in enumerate(task.cases):
            given = [self.trace.values[n].seen[at] for n in self.tensors]
            wanted = self.trace.values[output].seen[at]
            try:
                with recorded_definitions() as definitions, torch.random.fork_rng([]):
                    model = run_reference(task.reference)["Model"](*case.init_args)
                    own = definitions.parameters(model)
                    names = [name.replace(".", "_") for name in own]
                    for tensor, number in zip(own.values(), self.parameters, strict=True):
                        tensor.copy_(self.trace.values[number].seen[at])
                with torch.no_grad():
                    found = model(*(t.clone() for t in given))
            except Exception as e:  # whatever torch raises
                raise PartsError(f"its part {task.description} cannot be run alone: {e}") from e
            if found.shape != wanted.shape or not torch.allclose(
                found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True
            ):
                raise PartsError(f"its part {task.description} gives something else alone")
        return names


def known_extents(trace: Trace, before: int) -> list[Known]:
    """Extents that the whole can ask for before a value is made, in C++, and its numbers."""
    own = inlined(trace)
    found = []
    for value in trace.values[:before]:
        if value.root == value.number and value.number not in own:
            name = variable(trace, value.number)
            found += [
                Known(f"{name}.size({axis})", value.extents(axis)) for axis in range(value.rank)
            ]
    found += [Known(name, values) for kind, name, values in numbers(trace) if kind == "int64_t"]
    return found


def numbers(trace: Trace) -> list[tuple[str, str, tuple[Any, ...]]]:
    """(C++ type, name, value at each shape set) of the numbers that the whole's kernel may take."""
    kinds = {bool: "bool", int: "int64_t", float: "double"}
    sets = (*trace.cases, *trace.more)
    given = [case.init_args or trace.task.init_args for case in sets]
    return [
        (kinds[type(values[0])], f"number{at}", values)
        for at, values in enumerate(zip(*given, strict=True))
        if type(values[0]) in kinds
    ]


def variable(trace: Trace, number: int) -> str:
    """What the whole's host code calls a value."""
    value: Value = trace.values[number]
    return f"given{number}" if number < trace.inputs + trace.parameters else f"made{value.number}"


def _is_usual(call: Call, name: str, leaf: Any) -> bool:
    """Whether an argument has the value that it has where nobody gives it."""
    if not isinstance(leaf, Const) or leaf.varies:
        return False
    try:
        usual = inspect.signature(call.func).parameters[name].default
    except (ValueError, TypeError, KeyError):
        usual = None
    return type(usual) is type(leaf.values[0]) and usual == leaf.values[0]


def _is_none(leaf: Any) -> bool:
    return isinstance(leaf, Const) and set(leaf.values) == {None}


def _bounds(value: Value, at: int) -> tuple[float | None, float | None]:
    """Of what no caller draws: where the module makes no negative number, none is drawn; a whole
    number of its own (an offset, an index) stays between those that it has, at a size for a GPU
    between those of the first small one."""
    seen = [t for t in value.seen if t.numel() and t.isfinite().all()]
    if not seen or value.dtype == "bool":
        return None, None
    if not value.floating:
        own = value.seen[at if at < len(value.seen) else 0]
        return (float(own.min()), float(own.max())) if own.numel() else (None, None)
    least, most = min(float(t.min()) for t in seen), max(float(t.max()) for t in seen)
    return (least / 2, most * 2) if 0 <= least < most else (None, None)

"""The contract of a task, made from its reference: how a kernel's `forward` is called.

The signature has the inputs at their real sizes, then the model's parameters and buffers with their
shapes in the order of their definition, then the numbers among the constructor's arguments. Said
beside it: the constants by name, and what varies from call to call.

The reference runs on PyTorch's meta device: shapes, no memory and no arithmetic. It is the task's
own source, which is trusted; of a task that a caller brought the contract was found in a sandbox.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coding_framework.errors import InfrastructureError, UsageError
from coding_framework.types import CALLERS, InitArg, Task, TestCase

_C_TYPES: dict[type, str] = {bool: "bool", int: "int", float: "float"}


@dataclass(frozen=True, slots=True)
class Contract:
    """What a prompt says of the call. Maker: `contract_of`. Consumer: v3's templates."""

    signature: str
    """`forward(Tensor x[16, 64, 56, 56], Tensor conv_weight[128, 64, 3, 3], float eps)`."""
    constants: str
    """`kernel_size = 3, eps = 1e-05`: what has the same value in every call, defaults of the
    constructor among it; "" where nothing."""
    varies: str
    """`axes 0, 2, 3 of x; in_channels`: what has not; "" where nothing."""
    numbers: bool
    """Whether the signature ends with numbers."""


_TOLD: OrderedDict[Task, Contract] = OrderedDict()
_MOST_TOLD = 512


def tell_contract(task: Task, contract: Contract) -> None:
    """Of a task that a caller brought: its reference may not run here, and a sandbox found this."""
    _TOLD[task] = contract
    while len(_TOLD) > _MOST_TOLD:
        _TOLD.popitem(last=False)


def contract_of(task: Task) -> Contract:
    """The task's contract. Raises UsageError where its reference cannot be built,
    InfrastructureError where a caller brought it and nobody has told its contract."""
    if task.source != CALLERS:
        return built_contract(task)
    if task not in _TOLD:
        raise InfrastructureError(f"nobody has told the contract of task {task.name!r}: ask again")
    return _TOLD[task]


@lru_cache(maxsize=512)
def built_contract(task: Task) -> Contract:
    """The contract, for which the task's reference runs here. Raises UsageError."""
    case = task.gpu_cases[0] if task.gpu_cases else _shown(task)
    try:
        built = _built(task, case)
    except Exception as e:  # whatever a user's own source raises
        raise UsageError(
            f"the reference of task {task.name!r} cannot be built ({type(e).__name__}: {e}): "
            "correct its Model or its arguments"
        ) from e
    arguments = built.arguments
    given = zip(built.inputs, case.inputs, strict=True)
    tensors = [_tensor(name, spec.dtype, spec.shape, spec.strides) for name, spec in given]
    tensors += [_tensor(n.replace(".", "_"), dtype, shape) for n, dtype, shape in built.parameters]
    numbers = [
        f"{_C_TYPES[type(v)]} {name}" for name, v in arguments.items() if type(v) in _C_TYPES
    ]
    changing = _changing(task, list(arguments))
    fixed = {name: value for name, value in arguments.items() if name not in changing}
    fixed |= built.defaults
    return Contract(
        signature=f"forward({', '.join((*tensors, *numbers))})",
        constants=", ".join(f"{name} = {value!r}" for name, value in fixed.items()),
        varies="; ".join((*_changing_axes(task, built.inputs), *changing)),
        numbers=bool(numbers),
    )


def _shown(task: Task) -> TestCase:
    return next((c for c in task.cases if c.shown), task.cases[0])


def _tensor(name: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] = ()) -> str:
    kind = "Tensor" if dtype == "float32" else f"Tensor<{dtype}>"
    return f"{kind} {name}{list(shape)}" + (f" strides {list(strides)}" if strides else "")


@dataclass(frozen=True, slots=True)
class _Built:
    """What a model says of itself."""

    arguments: dict[str, InitArg]
    """The constructor's, by name."""
    defaults: dict[str, InitArg | None]
    """Of the constructor's arguments that nobody gives."""
    inputs: tuple[str, ...]
    """What `forward` calls the tensors that it is given."""
    parameters: list[tuple[str, str, tuple[int, ...]]]
    """(name, dtype, shape) of each."""


def _built(task: Task, case: TestCase) -> _Built:
    """The reference's model at the sizes of a shape set."""
    import torch

    from coding_framework.reference_model import (
        make_model,
        recorded_definitions,
        run_reference,
    )

    values = case.init_args or task.init_args
    namespace = run_reference(task.reference)
    with torch.device("meta"), recorded_definitions() as definitions:
        model = make_model(namespace["Model"], values)
    own = _own_model(namespace["Model"], task)
    names = _argument_names(own, task, len(values))
    named = dict(zip(names, values, strict=True))
    floating = [str(spec.dtype) for spec in case.inputs if "float" in spec.dtype]
    state = definitions.parameters(model).items()
    shapes = [(name, _dtype(t, floating), tuple(t.shape)) for name, t in state]
    return _Built(named, _defaults(own, named), _input_names(own, task, case), shapes)


def _own_model(model: Any, task: Task) -> Any:
    """The class that the problem's author wrote: below ours where scalars became arguments."""
    return model.__mro__[1] if task.scalar_positions else model


def _defaults(model: Callable[..., Any], given: Container[str]) -> dict[str, InitArg | None]:
    """What the constructor takes where nothing is given, as far as it can be written."""
    parameters = inspect.signature(model).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in given and _written(p.default)}


def _written(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_written, value))
    return value is None or type(value) in (bool, int, float, str)


def _input_names(model: Any, task: Task, case: TestCase) -> tuple[str, ...]:
    """As `forward` has them, where it takes each tensor by a name; else as the task has them."""
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]
    names = [p.name for k, p in enumerate(parameters) if k not in task.scalar_positions]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or len(names) < len(case.inputs):
        return tuple(spec.name for spec in case.inputs)
    return tuple(names[: len(case.inputs)])


def _dtype(tensor: Any, floating: list[str]) -> str:
    """A model takes the dtype of its first floating input."""
    own = str(tensor.dtype).removeprefix("torch.")
    return floating[0] if floating and tensor.is_floating_point() else own


def _argument_names(model: Any, task: Task, count: int) -> list[str]:
    """The names of so many arguments: those of the constructor, then those of `forward`'s scalar
    inputs where these became arguments."""
    own, inputs = list(_named(model)), list(inspect.signature(model.forward).parameters)[1:]
    scalars = [inputs[k] if k < len(inputs) else f"scalar{k}" for k in task.scalar_positions]
    names = own[: count - len(scalars)]
    names += [f"argument{k}" for k in range(len(names), count - len(scalars))]
    return [*names, *scalars]


def _named(call: Any) -> Iterator[str]:
    """The parameters that have a name of their own."""
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield name


def _changing(task: Task, names: list[str]) -> list[str]:
    """The arguments whose values differ between the shape sets."""
    sets = [case.init_args or task.init_args for case in (*task.cases, *task.gpu_cases)]
    return [
        name
        for k, name in enumerate(names)
        if len({repr(values[k]) if k < len(values) else "" for values in sets}) > 1
    ]


def _changing_axes(task: Task, names: tuple[str, ...]) -> Iterator[str]:
    """`axes 0, 2 of x` for each input whose extents differ between the shape sets."""
    cases = (*task.cases, *task.gpu_cases)
    for j, (name, spec) in enumerate(zip(names, task.cases[0].inputs, strict=True)):
        shapes = [case.inputs[j].shape for case in cases]
        if len({len(shape) for shape in shapes}) > 1:
            yield f"the rank of {name}"
            continue
        axes = [a for a in range(len(spec.shape)) if len({shape[a] for shape in shapes}) > 1]
        if len(axes) == len(spec.shape) > 0:
            yield f"all axes of {name}"
        elif axes:
            yield f"{'axes' if len(axes) > 1 else 'axis'} {', '.join(map(str, axes))} of {name}"


_TEST_CODE = frozenset({"get_inputs", "get_init_inputs"})


def without_test_code(reference: str) -> str:
    """The module alone: without the functions that draw inputs, and without the constants that only
    they use. The contract has the sizes."""
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return reference
    dropped: list[ast.stmt] = []
    used: set[str] = set()
    for node in reversed(tree.body):
        test_code = isinstance(node, ast.FunctionDef) and node.name in _TEST_CODE
        if test_code or (isinstance(node, ast.Assign) and not _bound(node) & used):
            dropped.append(node)
        else:
            used |= {m.id for m in ast.walk(node) if isinstance(m, ast.Name)}
    # as Python counts them: a form feed or a separator within a text ends none
    lines = re.split(r"\r\n|\r|\n", reference)
    gone = {k for n in dropped for k in range(n.lineno - 1, n.end_lineno or n.lineno)}
    left = [line for k, line in enumerate(lines) if k not in gone and not line.startswith("#")]
    return "\n".join(_without_runs_of_empty_lines(left)).strip() + "\n"


def _bound(node: ast.Assign) -> set[str]:
    return {m.id for target in node.targets for m in ast.walk(target) if isinstance(m, ast.Name)}


def _without_runs_of_empty_lines(lines: list[str]) -> Iterator[str]:
    empty = 0
    for line in lines:
        empty = empty + 1 if not line.strip() else 0
        if empty < 2:
            yield line

"""The naive kernel of a problem whose module is elementwise: one operation a launch, through
memory, as eager PyTorch runs it. A user's own kernel is held against it where eager is not timed.

`torch.fx` writes down what the module does. Where that cannot be said in these operations (a
matrix product, a sum, a broadcast, parameters) there is no such kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.synthesis.op_table import UNARY_OPS
from coding_framework.types import Task

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
_STEP = """\
__global__ void {name}({pointers}, float* out, int64_t n) {{
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) {{
{reads}
        out[i] = {result};
    }}
}}
"""
_FILE = """\
#include <torch/extension.h>

{steps}
torch::Tensor forward({arguments}) {{
    const int64_t n = {first}.numel();
    const int blocks = static_cast<int>((n + 255) / 256);
{launches}
    return {last};
}}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
    m.def("forward", &forward);
}}
"""


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation: its result's name, what it computes of v and o, and these."""

    result: str
    template: str
    operands: tuple[str | float, ...]
    """Names of tensors, or numbers."""


def operation_by_operation(task: Task) -> str | None:
    """The kernel's source; None where the module does something else. Runs the task's reference."""
    if not _one_shape(task):
        return None
    try:
        names, steps, last = _steps(task)
    except Exception:  # whatever a user's module raises where it is run on no values
        return None
    if not steps or last not in {step.result for step in steps}:
        return None
    return _FILE.format(
        steps="\n".join(map(_kernel, steps)),
        arguments=", ".join(f"torch::Tensor {name}" for name in names),
        first=names[0],
        launches="\n".join(_launch(step, names[0]) for step in steps),
        last=last,
    )


def _one_shape(task: Task) -> bool:
    """Whether each call's inputs are float32 of one shape, and nothing else varies."""
    cases = (*task.cases, *task.gpu_cases)
    alike = all(
        len({spec.shape for spec in case.inputs}) == 1
        and all(spec.dtype == "float32" for spec in case.inputs)
        for case in cases
    )
    return alike and len({case.init_args or task.init_args for case in cases}) == 1


def _steps(task: Task) -> tuple[list[str], list[_Step], str]:
    """(inputs, operations, the output's name). Raises whatever the module does, KeyError for an
    operation that is not one of ours, ValueError for another use of one."""
    from torch import fx, nn

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return False

    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(compile(task.reference, f"<{task.name}>", "exec"), namespace)
    model = namespace["Model"](*(task.cases[0].init_args or task.init_args))
    if model.state_dict():
        raise ValueError("it has parameters")
    named: dict[fx.Node, str] = {}
    inputs: list[str] = []
    steps: list[_Step] = []
    for node in Tracer().trace(model).nodes:
        if node.op == "output":
            return inputs, steps, named[node.args[0]]
        named[node] = f"t{len(named)}"
        if node.op == "placeholder":
            inputs.append(named[node])
        elif node.op in ("call_function", "call_method"):
            name = node.target if isinstance(node.target, str) else node.target.__name__
            arguments = (*node.args, *node.kwargs.values())
            given = [named[a] if isinstance(a, fx.Node) else a for a in arguments]
            steps.append(_step(named[node], name, given))
        else:
            raise ValueError(f"{node.op} is none of these operations")
    raise ValueError("it returns nothing")


def _step(result: str, name: str, given: Sequence[Any]) -> _Step:
    binary = name in _BINARY
    operands, options = tuple(given[: 1 + binary]), given[1 + binary :]
    more = tuple(x for x in options if not (isinstance(x, bool) or x in (None, "none")))
    if more not in ((), _USUAL.get(name, ())):
        raise ValueError(f"{name} with {more}")
    template = _BINARY[name] if binary else _UNARY[name]
    if name == "pow" and operands[1] in _POWERS:
        operands, template = operands[:1], _POWERS[operands[1]]
    if not all(isinstance(x, str) or math.isfinite(x) for x in operands):
        raise ValueError(f"{name} of {operands}")
    return _Step(result, template, operands)


def _tensors(step: _Step) -> Iterator[str]:
    yield from dict.fromkeys(x for x in step.operands if isinstance(x, str))


def _kernel(step: _Step) -> str:
    reads = [
        f"        const float {name} = {x}[i];" if isinstance(x, str)
        else f"        const float {name} = {float(x)!r}f;"
        for name, x in zip("vo", step.operands, strict=False)
    ]  # fmt: skip
    return _STEP.format(
        name=f"{step.result}_kernel",
        pointers=", ".join(f"const float* {x}" for x in _tensors(step)),
        reads="\n".join(reads),
        result=step.template.format(v="v", o="o"),
    )


def _launch(step: _Step, like: str) -> str:
    pointers = "".join(f"{x}.data_ptr<float>(), " for x in _tensors(step))
    return (
        f"    auto {step.result} = torch::empty_like({like});\n"
        f"    {step.result}_kernel<<<blocks, 256>>>("
        f"{pointers}{step.result}.data_ptr<float>(), n);"
    )

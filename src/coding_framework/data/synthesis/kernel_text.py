"""Pieces of CUDA source that every kernel template shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coding_framework.data.synthesis.interval import Operand
from coding_framework.data.synthesis.program import Operation, Program
from coding_framework.data.synthesis.styles import Style
from coding_framework.types import KernelExample

Lines = list[str]
Reads = Mapping[Operand, str]
"""For each kind of input the expression that reads it, with {p} for its name."""

BY_VALUE: Reads = dict.fromkeys(("full", "row", "col", "scalar"), "{p}")
IN_ROW: Reads = {"full": "{p}[r * w + j]", "row": "{p}[j]", "col": "{p}[r]", "scalar": "{p}[0]"}
"""At row r and column j of a matrix with w columns."""


def flat_reads(index: str) -> Reads:
    """At a flat index of a matrix with w columns."""
    return {
        "full": f"{{p}}[{index}]",
        "row": f"{{p}}[{index} % w]",
        "col": f"{{p}}[{index} / w]",
        "scalar": "{p}[0]",
    }


@dataclass(frozen=True, slots=True)
class Combine:
    """How a reduction or scan joins two values."""

    identity: str
    template: str

    def assign(self, target: str, other: str) -> str:
        return f"{target} = {self.template.format(a=target, b=other)};"


ADD = Combine("0.0f", "{a} + {b}")
MAX = Combine("-INFINITY", "fmaxf({a}, {b})")
MIN = Combine("INFINITY", "fminf({a}, {b})")


def statements(operations: tuple[Operation, ...], value: str, reads: Reads = BY_VALUE) -> Lines:
    """One statement a step."""
    lines = []
    for operation in operations:
        kind = operation.step.operand
        read = reads[kind].format(p=operation.operand) if kind is not None else ""
        lines.append(f"{value} = {operation.step.render(operation.step.op.c, value, read)};")
    return lines


def block(head: str, body: Lines) -> Lines:
    """A braced block, indented by two spaces."""
    return [f"{head} {{", *(f"  {line}" for line in body), "}"]


def guarded(style: Style, condition: str, opposite: str, body: Lines) -> Lines:
    """`body` only where the condition holds."""
    if style.early_return:
        return [f"if ({opposite}) return;", *body]
    return block(f"if ({condition})", body)


def kernel(program: Program, style: Style, sizes: list[str], body: Lines) -> Lines:
    """The `__global__` function: inputs, output, sizes."""
    pointers = [style.pointer(name) for name in _names(program)]
    parameters = [*pointers, style.pointer(style.out, const=False), *(f"int {s}" for s in sizes)]
    return block(f"__global__ void {style.kernel}({', '.join(parameters)})", body)


def device_function(program: Program, style: Style) -> Lines:
    """`f`: the steps before the layout on one element; inputs are passed by value."""
    before, _ = program.bind()
    names = [style.value, *(o.operand for o in before if o.operand)]
    return block(
        f"__device__ float f({', '.join(f'float {n}' for n in names)})",
        [*statements(before, style.value), f"return {style.value};"],
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """How `forward` calls the kernel."""

    sizes: str
    """Statement that names the sizes."""
    allocate: str
    grid: str
    """What stands between <<< and >>>."""
    arguments: list[str]
    """Sizes passed to the kernel."""


def source(program: Program, style: Style, comment: str, launch: Launch, *parts: Lines) -> str:
    """The whole .cu: include, device code, `forward`, module."""
    names, out = _names(program), style.out
    pointers = [f"{name}.data_ptr<float>()" for name in (*names, out)]
    forward = block(
        f"torch::Tensor forward({', '.join(f'torch::Tensor {n}' for n in names)})",
        [
            launch.sizes,
            f"auto {out} = {launch.allocate};",
            f"{style.kernel}<<<{launch.grid}>>>({', '.join([*pointers, *launch.arguments])});",
            f"return {out};",
        ],
    )
    module = ['PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }']
    sections = [["#include <torch/extension.h>"], *parts, forward, module]
    if style.comment:
        sections[1] = [f"// {comment}", *sections[1]]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def example(program: Program, level: str, code: str, why: str = "") -> KernelExample:
    return KernelExample(task=program.name, level=level, code=code, why_faster=why)


def _names(program: Program) -> list[str]:
    return ["x", *(given.name for given in program.inputs)]

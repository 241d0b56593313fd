"""Pieces of CUDA source that every kernel template shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Protocol

from coding_framework.data.synthesis.interval import Operand
from coding_framework.data.synthesis.program import Operation
from coding_framework.data.synthesis.styles import Style
from coding_framework.types import KernelExample

Lines = list[str]


class Subject(Protocol):
    """What a kernel is written for: a program, or a workload."""

    @property
    def name(self) -> str: ...

    @property
    def tensors(self) -> tuple[tuple[str, str], ...]:
        """(name, C type of an element) of each input, in the order of `forward`."""
        ...

    @property
    def element(self) -> str:
        """C type of an element of the output."""
        ...


Reads = Mapping[Operand, str]
"""For each kind of input the expression that reads it, with {p} for its name."""

BY_VALUE: Reads = dict.fromkeys(("full", "row", "col", "scalar"), "{p}")


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


def kernel(subject: Subject, style: Style, sizes: list[str], body: Lines) -> Lines:
    """The `__global__` function: inputs, output, sizes."""
    pointers = [style.pointer(name, element) for name, element in subject.tensors]
    output = style.pointer(style.out, subject.element, const=False)
    parameters = [*pointers, output, *(f"int {s}" for s in sizes)]
    return block(f"__global__ void {style.kernel}({', '.join(parameters)})", body)


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
    then: tuple[str, ...] = ()
    """Launches that follow it, as statements."""


def source(subject: Subject, style: Style, comment: str, launch: Launch, *parts: Lines) -> str:
    """The whole .cu: include, device code, `forward`, module."""
    names, out = [name for name, _ in subject.tensors], style.out
    tensors = (*subject.tensors, (out, subject.element))
    pointers = [f"{name}.data_ptr<{element}>()" for name, element in tensors]
    forward = block(
        f"torch::Tensor forward({', '.join(f'torch::Tensor {n}' for n in names)})",
        [
            launch.sizes,
            f"auto {out} = {launch.allocate};",
            f"{style.kernel}<<<{launch.grid}>>>({', '.join([*pointers, *launch.arguments])});",
            *launch.then,
            f"return {out};",
        ],
    )
    module = ['PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }']
    sections = [["#include <torch/extension.h>"], *parts, forward, module]
    if style.comment:
        sections[1] = [f"// {comment}", *sections[1]]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def example(subject: Subject, level: str, code: str, why: str = "") -> KernelExample:
    return KernelExample(task=subject.name, level=level, code=code, why_faster=why)


def one_kernel(
    subject: Subject,
    style: Style,
    level: str,
    comment: str,
    launch: Launch,
    body: Lines,
    why: str = "",
    before: Sequence[Lines] = (),
) -> KernelExample:
    """The example whose source is one `__global__` function around `body`. before: what it uses,
    types and `__device__` functions."""
    device = kernel(subject, style, launch.arguments, body)
    return example(subject, level, source(subject, style, comment, launch, *before, device), why)


def fill(template: str, **values: str | int | Lines) -> Lines:
    """A template's lines, `$name` filled in; a line that is only `$name` becomes the lines of that
    list, at its indentation, or nothing where the list is empty."""
    lines: Lines = []
    for line in template.strip("\n").splitlines():
        text = line.lstrip()
        found = values.get(text[1:]) if text.startswith("$") else None
        if isinstance(found, list):
            lines += [line[: len(line) - len(text)] + inner for inner in found]
        else:
            lines.append(Template(line).substitute(values))
    return lines


def signed(number: int) -> str:
    """What adds a number to an expression; nothing for 0."""
    return "" if number == 0 else f" + {number}" if number > 0 else f" - {-number}"

"""An archive-style kernel as a KernelBench answer (`ModelNew` with load_inline), and the way back.

The answer has the reference's own constructor, so that its parameters are the reference's, and a
`forward` that hands them to the kernel in the order of their definition. The kernel's text stands
in it unchanged. The same kernel and task give the same text.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coding_framework.data.kernelbench.own_module import needed
from coding_framework.errors import UsageError
from coding_framework.reference_model import (
    make_model,
    recorded_definitions,
    run_reference,
)
from coding_framework.types import InitArg, Task

_BOUND = re.compile(r'm\s*\.\s*def\s*\(\s*"forward"\s*,\s*&?\s*(\w+)')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def export_modelnew(kernel: str, task: Task) -> str:
    """The answer. Raises UsageError where the kernel binds no `forward`, or one that takes neither
    the tensors of the task nor these and its numbers."""
    if '"""' in kernel or kernel.endswith(('"', "\\")):
        raise UsageError(
            "the kernel has three double quotes in a row or ends with one: Python cannot hold it"
        )
    model = _Model.of(task)
    takes = arguments_of_forward(kernel)
    tensors = [*model.inputs, *(_attribute(name) for name in model.parameters)]
    if takes == len(tensors):
        given = tensors
    elif takes == len(tensors) + len(model.numbers):
        given = [*tensors, *model.numbers]
    else:
        raise UsageError(
            f"the kernel's forward takes {takes} arguments; the task has {len(tensors)} tensors "
            f"({', '.join(tensors)}) and {len(model.numbers)} numbers: take the tensors, or all"
        )
    name = f"kernel_{hashlib.sha256(kernel.encode()).hexdigest()[:12]}"
    lines = [
        *_imports(model.others),
        "from torch.utils.cpp_extension import load_inline",
        "",
        f'cuda_source = r"""{kernel}"""',
        "",
        f'extension = load_inline(name="{name}", cpp_sources="", cuda_sources=cuda_source)',
        "",
        "",
        *_others(model.others),
        model.class_source(given),
    ]
    return "\n".join(lines) + "\n"


def import_modelnew(answer: str) -> str:
    """The kernel of an answer with one extension of one function. Raises UsageError where it has
    another form."""
    try:
        tree = ast.parse(answer)
    except SyntaxError as e:
        raise UsageError(f"the answer is not Python: {e}") from e
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _called(n) == "load_inline"]
    if len(calls) != 1:
        raise UsageError(
            f"the answer calls load_inline {len(calls)} times: one call can be imported"
        )
    texts = _texts(tree)
    given: dict[str, Any] = {k.arg or "": k.value for k in calls[0].keywords}
    given |= dict(
        zip(("name", "cpp_sources", "cuda_sources", "functions"), calls[0].args, strict=False)
    )
    if "cuda_sources" not in given:
        raise UsageError(
            "the answer's load_inline has no cuda_sources: there is no kernel to import"
        )
    source = "\n".join(_values(given["cuda_sources"], texts))
    if "PYBIND11_MODULE" in source:
        return source
    functions = _values(given["functions"], texts) if "functions" in given else []
    if len(functions) != 1:
        raise UsageError(
            f"the answer binds {len(functions)} functions: one, forward, can be imported"
        )
    head = "" if "torch/extension.h" in source else "#include <torch/extension.h>\n\n"
    bind = f'm.def("forward", &{functions[0]});'
    return f"{head}{source.strip()}\n\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {bind} }}\n"


# --- the kernel ----------------------------------------------------------------------------------


def arguments_of_forward(kernel: str) -> int:
    """How many arguments the function that is bound as `forward` has. Raises UsageError where none
    is bound by its name."""
    plain = _COMMENT.sub("", kernel)
    bound = _BOUND.search(plain)
    if bound is None:
        raise UsageError(
            'the kernel binds no forward: end it with PYBIND11_MODULE and m.def("forward")'
        )
    found = re.search(rf"\b{bound[1]}\s*\(", plain)
    if found is None:
        raise UsageError(f"the kernel binds {bound[1]}, which it does not define")
    depth, count, text = 1, 0, ""
    for character in plain[found.end() :]:
        depth += (character in "(<[{") - (character in ")>]}")
        if depth == 0:
            break
        if character == "," and depth == 1:
            count += 1
        text += character
    return count + 1 if text.strip() not in ("", "void") else 0


# --- the reference -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Model:
    """What the reference says: the class that its author wrote, and how a kernel is handed it."""

    tree: ast.ClassDef
    others: list[ast.stmt]
    """Statements beside the class that it needs."""
    inputs: list[str]
    parameters: tuple[str, ...]
    numbers: list[str]
    """Expressions of the numbers, in `forward`."""
    kept: list[str]
    """The constructor's arguments that `forward` needs."""

    @classmethod
    def of(cls, task: Task) -> _Model:
        """Raises UsageError where the reference cannot be built."""
        tree = ast.parse(task.reference)
        classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        own = classes.get("ProblemModel", classes["Model"])
        inputs = [a.arg for a in _method(own, "forward").args.args[1:]]
        tensors = [n for k, n in enumerate(inputs) if k not in task.scalar_positions]
        scalars = [inputs[k] for k in task.scalar_positions]
        names = [a.arg for a in _method(own, "__init__").args.args[1:]] if _has_init(own) else []
        values = task.cases[0].init_args or task.init_args
        if len(tensors) < len(task.cases[0].inputs) or len(names) < len(values) - len(scalars):
            raise UsageError(
                "the reference's Model does not name its arguments: it cannot be exported"
            )
        kept = [n for n, v in zip(names, values, strict=False) if isinstance(v, (bool, int, float))]
        return cls(
            tree=own,
            others=[n for n in needed(tree, own.name) if n is not own],
            inputs=tensors[: len(task.cases[0].inputs)],
            parameters=_parameters(task, values),
            numbers=[*(f"self.argument_{n}" for n in kept), *scalars],
            kept=kept,
        )

    def class_source(self, given: Sequence[str]) -> str:
        """`ModelNew`: the constructor as it is, and a `forward` that calls the kernel."""
        old = self.tree.name
        init = _method(self.tree, "__init__") if _has_init(self.tree) else None
        lines = ["class ModelNew(nn.Module):"]
        keeps = any(g.startswith("self.argument_") for g in given)
        if init is not None:
            text = ast.unparse(init).replace(f"super({old}, self)", "super()")
            lines += [f"    {line}" if line else "" for line in text.splitlines()]
            if keeps:
                lines += [f"        self.argument_{name} = {name}" for name in self.kept]
            lines.append("")
        arguments = ast.unparse(_method(self.tree, "forward").args)
        lines += [
            f"    def forward({arguments}):",
            f"        return extension.forward({', '.join(given)})",
        ]
        return "\n".join(lines)


def _has_init(tree: ast.ClassDef) -> bool:
    return any(isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in tree.body)


def _method(tree: ast.ClassDef, name: str) -> ast.FunctionDef:
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)


def _imports(others: Sequence[ast.stmt]) -> Iterator[str]:
    found = [ast.unparse(n) for n in others if isinstance(n, (ast.Import, ast.ImportFrom))]
    yield from dict.fromkeys((*found, "import torch", "import torch.nn as nn"))


def _others(others: Sequence[ast.stmt]) -> Iterator[str]:
    for node in others:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (ast.unparse(node), "", "")


def _parameters(task: Task, values: Sequence[InitArg]) -> tuple[str, ...]:
    """Their names, in the order of their definition."""
    import torch

    try:
        names = run_reference(task.reference)
        with torch.device("meta"), recorded_definitions() as definitions:
            model = make_model(names["Model"], values)
    except Exception as e:  # whatever a user's own source raises
        raise UsageError(
            f"the reference of task {task.name!r} cannot be built ({type(e).__name__}: {e}): "
            "correct its Model or its arguments"
        ) from e
    return tuple(definitions.parameters(model))


def _attribute(name: str) -> str:
    """`self.layers[0].weight`."""
    return "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in name.split("."))


# --- an answer's texts ---------------------------------------------------------------------------


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _texts(tree: ast.Module) -> dict[str, str]:
    """The names that stand for a text, at the top of the answer."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def _values(node: ast.expr, texts: dict[str, str]) -> list[str]:
    """A text, a name that stands for one, or a list of such."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [text for element in node.elts for text in _values(element, texts)]
    if isinstance(node, ast.Name) and node.id in texts:
        return [texts[node.id]]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    raise UsageError(
        f"the answer computes its source ({ast.unparse(node)[:60]}): only texts are imported"
    )

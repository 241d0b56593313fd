"""Spells a draft in PyTorch: the file that a user would bring, in the form of KernelBench.

Guaranteed: a task's source is a function of its draft and the number of its spelling. The
constants at the end of the file are the main sizes of a GPU.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from coding_framework.data.modules.layers import LAYERS
from coding_framework.data.modules.pointwise import POINTWISE, write_pointwise
from coding_framework.data.modules.records import (
    ModuleDraft,
    ModuleInput,
    ModuleTask,
    Operation,
    SizeName,
    Value,
)
from coding_framework.data.modules.spelling import Writing, draw_spelling
from coding_framework.data.modules.structural import STRUCTURAL


def write_module(draft: ModuleDraft, spelling: int = 0, *, renamed: bool = False) -> ModuleTask:
    """The module task of a draft. spelling: the number of another way to write it. renamed: its
    constants have other names than their operations'."""
    w = Writing(draft, replace(draw_spelling(draft.name, spelling), renamed=renamed))
    first = draft.inputs[0]
    w.rank = len(first.dims)
    w.channels = _channels(draft)
    if draft.has_shortcut:
        w.shortcut = w.pick("identity", "shortcut", "skip")
        w.statement(f"{w.shortcut} = {w.value}")
    for number, operation in enumerate(draft.operations):
        _write(w, operation)
        if number == 0 and any(
            POINTWISE[o.name].reads == "head" for o in draft.operations if o.name in POINTWISE
        ):
            w.statement(f"residual = {w.value}")
    return ModuleTask(
        draft=draft,
        source=_source(w),
        parameters=tuple(w.parameters),
        constructor=tuple(w.given.items()),
        description=describe(draft),
    )


def _channels(draft: ModuleDraft) -> str:
    dims = draft.inputs[0].dims
    if not dims:
        return "1"
    return dims[1] if draft.layout == "channels_first" and len(dims) > 1 else dims[-1]


def _write(w: Writing, operation: Operation) -> None:
    if operation.name in POINTWISE:
        write_pointwise(w, operation)
    else:
        (LAYERS.get(operation.name) or STRUCTURAL[operation.name])(w, operation)


def describe(draft: ModuleDraft) -> str:
    """One line of words: "conv2d, GELU, mean"."""
    words = [
        POINTWISE[o.name].words if o.name in POINTWISE else _words(o.name) for o in draft.operations
    ]
    return ", ".join(words)


def _words(name: str) -> str:
    return name.replace("_", " ")


# --- the file ------------------------------------------------------------------------------------


def _source(w: Writing) -> str:
    forward = _forward(w)  # first: it may ask for an import
    parts = ["import torch", "import torch.nn as nn"]
    if w.imports_functional:
        parts.append("import torch.nn.functional as F")
    lines = ["class Model(nn.Module):", *_class_docstring(w)]
    if w.init:
        lines += [*_constructor(w), *(f"        {line}" for line in w.init), ""]
    lines += forward
    return "\n".join((*parts, "", *lines, "", *_test_code(w), ""))


def _class_docstring(w: Writing) -> list[str]:
    if w.spelling.docstring == 0:
        return []
    said = f"{w.pick('Module', 'Model', 'Layer')} that computes {describe(w.draft)}."
    if w.spelling.docstring == 1 or not w.constructor:
        return [f'    """{said}"""', ""]
    lines = ['    """', f"    {said}", "", "    Args:"]
    lines += [
        f"        {name} ({_type(value)}): {_meaning(name)}."
        for name, value in w.constructor.items()
    ]
    return [*lines, '    """', ""]


def _type(value: Value | SizeName) -> str:
    return "int" if isinstance(value, SizeName) else type(value).__name__


def _meaning(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _constructor(w: Writing) -> list[str]:
    hints = w.spelling.hints
    left_out = w.left_out
    arguments = []
    for name, value in w.constructor.items():
        hint = f": {_type(value)}" if hints and value is not None else ""
        equals = " = " if hint else "="
        default = f"{equals}{left_out[name]!r}" if name in left_out else ""
        arguments.append(f"{name}{hint}{default}")
    start = "super(Model, self).__init__()" if w.spelling.old_super else "super().__init__()"
    return [f"    def __init__({', '.join(['self', *arguments])}):", f"        {start}"]


def _forward(w: Writing) -> list[str]:
    names = [given.name for given in w.draft.inputs]
    hints = w.spelling.hints
    said = ", ".join(f"{n}: torch.Tensor" if hints else n for n in names)
    arrow = " -> torch.Tensor" if hints else ""
    *body, last = w.forward
    start = f"{w.value} = "
    if w.spelling.nested and len(body) < 2 and all(line.startswith(start) for line in body):
        inner = body[0].removeprefix(start) if body else w.value
        value = last.removeprefix(start)
        if body and value.count(w.value) == 1 and value != inner:
            value, body = _with_inner(value, w.value, inner), []
        tail = [f"return {value}"]
    elif w.spelling.choice % 3 and last.startswith(start):
        tail = [f"return {last.removeprefix(start)}"]
    else:
        tail = [last, f"return {w.value}"]
    return [
        f"    def forward(self, {said}){arrow}:",
        *(f"        {line}" for line in (*body, *tail)),
    ]


def _with_inner(outer: str, name: str, inner: str) -> str:
    """The expression `outer`, with another for the name in it: in parentheses where Python would
    read something else without them."""
    plain, safe = outer.replace(name, inner), outer.replace(name, f"({inner})")
    return plain if ast.dump(ast.parse(plain)) == ast.dump(ast.parse(safe)) else safe


def _test_code(w: Writing) -> list[str]:
    draft, sizes = w.draft, w.draft.gpu_sizes[0]
    used = _used_sizes(w)
    lines = [f"{name} = {sizes[name]}" for name in sizes if name in used]
    constants = {n: v for n, v in w.given.items() if not isinstance(v, SizeName)}
    lines += [f"{name} = {value!r}" for name, value in constants.items()]
    drawn = [_draw(given) for given in draft.inputs]
    lines += ["", "", "def get_inputs():", f"    return [{', '.join(drawn)}]", "", ""]
    given_names = [v.expression if isinstance(v, SizeName) else n for n, v in w.given.items()]
    return [*lines, "def get_init_inputs():", f"    return [{', '.join(given_names)}]"]


def _used_sizes(w: Writing) -> set[str]:
    text = " ".join(d for given in w.draft.inputs for d in given.dims)
    text += " " + " ".join(str(given.high) for given in w.draft.inputs)
    text += " " + " ".join(v.expression for v in w.constructor.values() if isinstance(v, SizeName))
    for mark in "/*+-()":
        text = text.replace(mark, " ")
    return set(text.split())


def _draw(given: ModuleInput) -> str:
    dims = ", ".join(d.replace("/", "//") for d in given.dims)
    if given.dtype == "int64":
        return f"torch.randint(0, {given.high}, ({dims},))"
    if given.low is not None and given.low >= 0:
        return f"torch.rand({dims})"
    return f"torch.randn({dims})"

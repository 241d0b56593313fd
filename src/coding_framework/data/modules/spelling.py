"""How a module is written: a PyTorch file as a user would bring it, in the form of KernelBench.

The style is drawn from the task's name, so that a task is always spelled alike and the tasks
together are spelled in the many ways in which people write. The constants at the end of the file
are the main sizes of a GPU.

An operation is written by a `Row`, whose templates have holes:

    {x} {p}           the tensor in hand, and what an elementwise operation reads beside it
    {other} {last}    the second input, the last one; {others}: all but the first
    {n} {channels}    spatial axes; the size of the channels, as of any size by its name
    {dim} {dim:axis}  an argument of that name; the argument `axis`, which people call dim
    {,eps=1e-05}      the same as a keyword, left out where it has that value
    {,affine!True}    the same, written where it is and not through the constructor
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from coding_framework.data.modules.other_names import OTHER_NAMES
from coding_framework.data.modules.records import ModuleDraft, Operation, Value
from coding_framework.data.modules.sizes import drawn_place

Form = Literal["module", "functional"]
"""A layer of torch.nn made in `__init__`, or a function called with explicit parameters."""
Reads = Literal["", "parameter", "one", "input", "head"]
Arguments = tuple[tuple[str, Value], ...]
_HOLE = re.compile(r"\{(,?)(\w+)(?:([=!])([^:}]*))?(?::(\w+))?\}")


class SizeName(str):
    """A constructor's argument that is a size, by its name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Row:
    """How an operation is written, and if it is elementwise with which arguments it is drawn."""

    functions: tuple[str, ...] = ()
    """Expressions in `forward`, the lines before the last one being statements; "F." stands for
    torch.nn.functional. (): it is always a layer."""
    layer: str = ""
    """The layer of torch.nn; "" where there is none."""
    words: str = ""
    """In a description, where these are not the operation's name."""
    attributes: tuple[str, ...] = ()
    """What the layer is called, where it is not called as the operation."""
    called: str = "({x})"
    """What the layer is called with."""
    whole: bool = False
    """Where the constructor has defaults, all keywords are written."""
    imports: bool = False
    """A file with any of the functions imports torch.nn.functional."""
    prefix: str = ""
    """Of its constants' names beside those of a layer."""
    reads: Reads = ""
    """A parameter per channel or of one element, another input of x's shape, or what the first
    layer gave."""
    parameter: str = ""
    """What the parameter is called."""
    choices: tuple[Arguments, ...] = ((),)
    """Arguments to draw from in level 2."""
    alone: tuple[Arguments, ...] = ()
    """Further arguments that it is a task with by itself, in level 1."""
    usual: bool = False
    """The first choice is what PyTorch takes where nothing is said."""
    jumps: bool = False
    """Not continuous: never after arithmetic that rounds."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Choices that change no function."""

    form: Form
    arguments: Literal["constructor", "literal"]
    """Constants come through the constructor, or stand where they are used."""
    docstring: int
    """0: none, 1: one line, 2: with the arguments."""
    hints: bool
    """Types of the arguments."""
    old_super: bool
    nested: bool
    """Short modules are one expression."""
    choice: int
    """Picks among equal spellings of an operation."""
    defaults: bool = False
    """The constructor has defaults, and PyTorch's own are among its arguments."""
    renamed: bool = False
    """Constants have other names than their operations' (`OTHER_NAMES`), and of two modules one
    leaves out what PyTorch takes anyway."""


def draw_spelling(name: str, number: int = 0) -> Spelling:
    """The spelling of the task of that name. number: of another one than the task's own, which
    alone may have defaults: what the tasks' own are like has receipts."""
    rng = random.Random(f"spelling:{name}/{number}" if number else f"spelling:{name}")
    drawn = Spelling(
        form=rng.choice(("module", "module", "functional")),
        arguments=rng.choice(("constructor", "constructor", "literal")),
        docstring=rng.randrange(3),
        hints=rng.random() < 0.4,
        old_super=rng.random() < 0.5,
        nested=rng.random() < 0.3,
        choice=rng.randrange(60),
    )
    if number == 0 or rng.random() < 1 / 3:
        return drawn
    return replace(drawn, arguments="constructor", defaults=True)


@dataclass
class Writing:
    """A module while it is written: constructor, `__init__` and `forward`."""

    draft: ModuleDraft
    spelling: Spelling
    constructor: dict[str, Value] = field(default_factory=dict)
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    """Statements; the last one gives x."""
    attributes: set[str] = field(default_factory=set)
    imports_functional: bool = False
    channels: str = ""
    """The size that is the number of channels of x."""
    shortcut: str = ""
    """What `forward` calls the module's only input where a step reads it again."""

    def __post_init__(self) -> None:
        dims = self.draft.inputs[0].dims
        first = self.draft.layout == "channels_first" and len(dims) > 1
        self.channels = (dims[1] if first else dims[-1]) if dims else "1"
        if self.draft.has_shortcut:
            self.shortcut = self.pick("identity", "shortcut", "skip")
            self.forward.append(f"{self.shortcut} = {self.value}")

    @property
    def value(self) -> str:
        """The name of the first input, which the steps change."""
        return self.draft.inputs[0].name

    @property
    def left_out(self) -> dict[str, Value]:
        """The last arguments of the constructor, which nobody gives: their values are defaults. The
        first constant, as a kernel's size, is given."""
        if not self.spelling.defaults:
            return {}
        found: dict[str, Value] = {}
        for name, value in reversed(self.constructor.items()):
            if isinstance(value, SizeName) or name == "kernel_size":
                break
            found[name] = value
        given = self.spelling.choice // 2 % len(found) if found and self.spelling.choice % 2 else 0
        return dict([*reversed(found.items())][given:])

    @property
    def given(self) -> dict[str, Value]:
        """The other ones."""
        left_out = self.left_out
        return {n: v for n, v in self.constructor.items() if n not in left_out}

    def size(self, name: str) -> str:
        """What `__init__` calls a size, or a part of one: an argument of the constructor."""
        whole = name.partition(" ")[0]
        if whole.isidentifier():
            self.constructor.setdefault(whole, SizeName(whole))
        return name

    def called(self, name: str) -> str:
        """The name of a constant in this spelling."""
        if not self.spelling.renamed:
            return name
        names = (name, *OTHER_NAMES.get(name, ()))
        return names[drawn_place(f"{self.draft.name}/{name}", len(names))]

    def argument(self, name: str, value: Value) -> str:
        """What `__init__` calls a constant."""
        if self.spelling.arguments == "literal":
            return repr(value)
        held = self.constructor.setdefault(self.called(name), value)
        same = type(held) is type(value) and held == value
        return self.called(name) if same else repr(value)

    def constant(self, name: str, value: Value) -> str:
        """What `forward` calls a constant."""
        if name == "dim" and (self.draft.level == 2 or isinstance(value, tuple)):
            return repr(value)
        text, name = self.argument(name, value), self.called(name)
        if text == name:
            text = f"self.{name}"
            if name not in self.attributes:
                self.attributes.add(name)
                self.init.append(f"{text} = {name}")
        return 'float("inf")' if value == "inf" else text

    def attribute(self, base: str, made: str) -> str:
        """A new attribute that `__init__` makes; gives what `forward` calls it."""
        name, number = base, 1
        while name in self.attributes:
            number += 1
            name = f"{base}{number}"
        self.attributes.add(name)
        self.init.append(f"self.{name} = {made}")
        return f"self.{name}"

    def parameter(self, base: str, shape: tuple[str, ...], start: str = "torch.randn") -> str:
        """An explicit parameter, of sizes and numbers; gives what `forward` calls it."""
        shape = tuple(self.size(extent) for extent in shape)
        return self.attribute(base, f"nn.Parameter({start}({', '.join(shape)}))")

    def function(self, name: str) -> str:
        """How torch.nn.functional's function is called."""
        if self.spelling.choice % 5 == 0:
            return f"torch.nn.functional.{name}"
        self.imports_functional = True
        return f"F.{name}"

    def pick(self, *spellings: str) -> str:
        """One of equal spellings."""
        return spellings[self.spelling.choice % len(spellings)]

    def write(self, row: Row, o: Operation) -> None:
        """The statements of an operation, and what it needs in `__init__`."""
        functions, layer = row.functions, row.layer
        bare = row.usual and self.spelling.renamed and self.spelling.choice % 4 < 2
        if bare and o.arguments == row.choices[0]:
            functions = tuple(f"{said.partition('(')[0]}({{x}})" for said in functions[:1])
            layer = layer.partition("(")[0] + "()" * bool(layer)
        if layer and (self.spelling.form == "module" or not functions):
            made = self.filled(layer, row, o, self.argument).replace("(, ", "(")
            name = self.attribute(self.pick(*(row.attributes or (o.name,))), made)
            said = name + self.filled(row.called, row, o, self.constant)
        else:
            if row.imports:
                self.function("")
            said = self.filled(self.pick(*functions), row, o, self.constant)
            said = said.replace("F.", self.function("")) if "F." in said else said
        *statements, last = said.split("\n")
        self.forward += [*statements, f"{self.value} = {last}"]

    def filled(
        self, template: str, row: Row, o: Operation, say: Callable[[str, Value], str]
    ) -> str:
        """A template with its holes filled. say: what a constant is called there."""
        inputs = [given.name for given in self.draft.inputs]
        fixed = {
            "x": self.value, "other": inputs[min(1, len(inputs) - 1)], "last": inputs[-1],
            "others": ", ".join(inputs[1:]), "n": str(max(1, self.draft.rank - 2)),
        }  # fmt: skip
        arguments = {name: short(value) for name, value in o.arguments}

        def hole(found: re.Match[str]) -> str:
            comma, name, mark, usual, of = found.groups()
            if name in fixed:
                return fixed[name]
            if name == "p" and row.reads:
                return self._read(row)
            if name == "channels" or name in self.draft.sizes[0]:
                return self.size(self.channels if name == "channels" else name)
            if comma and (of or name) not in arguments:
                return ""
            value, prefix = arguments[of or name], row.prefix if self.draft.level == 2 else ""
            said = mark == "=" and row.whole and self.spelling.defaults
            if usual and not said:
                left = arguments[usual] if usual in arguments else ast.literal_eval(usual)
                if value == left:
                    return ""
            text = repr(value) if mark == "!" else say(prefix + name, value)
            return f", {name}={text}" if comma else text

        return _HOLE.sub(hole, template)

    def _read(self, row: Row) -> str:
        """What an elementwise operation reads beside x."""
        if row.reads == "input":
            return self.shortcut or self.draft.inputs[-1].name
        if row.reads == "head":
            return "residual"
        if row.reads == "one":
            return self.parameter(row.parameter, ("1",))
        inner = self.draft.rank - 2 if self.draft.layout == "channels_first" else 0
        return self.parameter(row.parameter, (self.channels, *("1",) * inner))

    # --- the file --------------------------------------------------------------------------------

    def source(self, description: str) -> str:
        """The PyTorch file."""
        head = ["import torch", "import torch.nn as nn"]
        if self.imports_functional:
            head.append("import torch.nn.functional as F")
        lines = ["class Model(nn.Module):", *self._docstring(description)]
        if self.init:
            lines += [*self._constructor(), *(f"        {line}" for line in self.init), ""]
        return "\n".join((*head, "", *lines, *self._forward(), "", *self._test_code(), ""))

    def _docstring(self, description: str) -> list[str]:
        if self.spelling.docstring == 0:
            return []
        said = f"{self.pick('Module', 'Model', 'Layer')} that computes {description}."
        if self.spelling.docstring == 1 or not self.constructor:
            return [f'    """{said}"""', ""]
        told = [
            f"        {name} ({_type(value)}): {name.replace('_', ' ').capitalize()}."
            for name, value in self.constructor.items()
        ]
        return ['    """', f"    {said}", "", "    Args:", *told, '    """', ""]

    def _constructor(self) -> list[str]:
        left_out, said = self.left_out, ["self"]
        for name, value in self.constructor.items():
            hint = f": {_type(value)}" if self.spelling.hints and value is not None else ""
            default = f"{' = ' if hint else '='}{left_out[name]!r}" if name in left_out else ""
            said.append(f"{name}{hint}{default}")
        start = "super(Model, self).__init__()" if self.spelling.old_super else "super().__init__()"
        return [f"    def __init__({', '.join(said)}):", f"        {start}"]

    def _forward(self) -> list[str]:
        hint = ": torch.Tensor" if self.spelling.hints else ""
        said = ", ".join(given.name + hint for given in self.draft.inputs)
        arrow = " -> torch.Tensor" if self.spelling.hints else ""
        *body, last = self.forward
        start = f"{self.value} = "
        if self.spelling.nested and len(body) < 2 and all(line.startswith(start) for line in body):
            inner = body[0].removeprefix(start) if body else self.value
            value = last.removeprefix(start)
            if body and value.count(self.value) == 1 and value != inner:
                value, body = with_inner(value, self.value, inner), []
            tail = [f"return {value}"]
        elif self.spelling.choice % 3 and last.startswith(start):
            tail = [f"return {last.removeprefix(start)}"]
        else:
            tail = [last, f"return {self.value}"]
        body = [f"        {line}" for line in (*body, *tail)]
        return [f"    def forward(self, {said}){arrow}:", *body]

    def _test_code(self) -> list[str]:
        given, inputs, sizes = self.given, self.draft.inputs, self.draft.gpu_sizes[0]
        used = {dim for one in inputs for dim in one.dims} | {one.high for one in inputs}
        used |= {value for value in self.constructor.values() if isinstance(value, SizeName)}
        lines = [f"{name} = {size}" for name, size in sizes.items() if name in used]
        lines += [f"{n} = {v!r}" for n, v in given.items() if not isinstance(v, SizeName)]
        drawn = []
        for one in inputs:
            dims = ", ".join(one.dims)
            if one.dtype == "int64":
                drawn.append(f"torch.randint(0, {one.high}, ({dims},))")
            else:
                positive = one.low is not None and one.low >= 0
                drawn.append(f"torch.{'rand' if positive else 'randn'}({dims})")
        lines += ["", "", "def get_inputs():", f"    return [{', '.join(drawn)}]", "", ""]
        return [*lines, "def get_init_inputs():", f"    return [{', '.join(given)}]"]


def short(value: Value) -> Value:
    """A tuple of equal numbers as one number, as people pass it."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def with_inner(outer: str, name: str, inner: str) -> str:
    """The expression `outer`, with another for the name in it: in parentheses where Python would
    read something else without them."""
    plain, safe = outer.replace(name, inner), outer.replace(name, f"({inner})")
    return plain if ast.dump(ast.parse(plain)) == ast.dump(ast.parse(safe)) else safe


def _type(value: Value) -> str:
    return "int" if isinstance(value, SizeName) else type(value).__name__

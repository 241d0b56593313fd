"""How a module is spelled: the pieces of its PyTorch source, collected while it is written.

The style is drawn from the task's name, so that a task is always spelled alike and the tasks
together are spelled in the many ways in which people write.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from coding_framework.data.modules.records import (
    ModuleDraft,
    Operation,
    Parameter,
    SizeName,
    Value,
)
from coding_framework.data.modules.sizes import drawn_place

Form = Literal["module", "functional"]
"""A layer of torch.nn made in `__init__`, or a function called with explicit parameters."""


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


OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "scale_factor": ("factor", "gain", "coefficient"),
    "divisor": ("denominator", "temperature"),
    "add_value": ("addend", "increment"),
    "subtract_value": ("decrement", "subtrahend"),
    "min_value": ("lower_bound", "floor"),
    "max_value": ("upper_bound", "ceiling"),
    "min_val": ("lowest",),
    "max_val": ("highest",),
    "pool_kernel_size": ("window", "pool_window"),
    "pool_stride": ("hop", "window_stride"),
    "dim": ("axis", "along"),
    "num_groups": ("n_groups", "channel_groups"),
    "eps": ("epsilon",),
    "lambd": ("cutoff",),
    "negative_slope": ("slope", "leak"),
    "threshold": ("limit",),
    "output_size": ("places", "pooled_size"),
    "shifts": ("steps",),
}
"""By a constant's own name, others that people give it; no two constants share one."""


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
    """A module while it is written: constructor, `__init__`, `forward`, parameters."""

    draft: ModuleDraft
    spelling: Spelling
    constructor: dict[str, Value | SizeName] = field(default_factory=dict)
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    """Statements; the last one gives x."""
    parameters: list[Parameter] = field(default_factory=list)
    channels: str = ""
    """Expression of the number of channels of x."""
    rank: int = 0
    """Of x."""
    attributes: set[str] = field(default_factory=set)
    imports_functional: bool = False
    shortcut: str = ""
    """What `forward` calls the module's only input where a step reads it again."""

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
    def given(self) -> dict[str, Value | SizeName]:
        """The other ones."""
        left_out = self.left_out
        return {n: v for n, v in self.constructor.items() if n not in left_out}

    @property
    def value(self) -> str:
        """The name of the first input, which the steps change."""
        return self.draft.inputs[0].name

    def size(self, expression: str) -> str:
        """What `__init__` calls an extent: an argument of the constructor, or an expression over
        such."""
        for name in sorted(_names(expression)):
            self.constructor.setdefault(name, SizeName(name))
        return expression.replace("/", "//")

    def called(self, name: str) -> str:
        """The name of a constant in this spelling."""
        names = (name, *OTHER_NAMES.get(name, ())) if self.spelling.renamed else (name,)
        return names[drawn_place(f"{self.draft.name}/{name}", len(names))]

    @property
    def leaves_defaults_out(self) -> bool:
        """Whether an elementwise operation is called as `F.softplus(x)` where it can be."""
        return self.spelling.renamed and self.spelling.choice % 4 < 2

    def argument(self, name: str, value: Value) -> str:
        """What `__init__` calls a constant."""
        name = self.called(name)
        literal = spelled(value)
        if self.spelling.arguments == "literal":
            return literal
        held = self.constructor.setdefault(name, value)
        same = type(held) is type(value) and held == value
        return name if same else literal

    def constant(self, name: str, value: Value) -> str:
        """What `forward` calls a constant."""
        text, name = self.argument(name, value), self.called(name)
        if text != name:
            return text
        if name not in self.attributes:
            self.attributes.add(name)
            self.init.append(f"self.{name} = {name}")
        return f"self.{name}"

    def attribute(self, base: str) -> str:
        """A new attribute's name."""
        name, number = base, 1
        while name in self.attributes:
            number += 1
            name = f"{base}{number}"
        self.attributes.add(name)
        return name

    def layer(
        self, base: str, call: str, parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ) -> None:
        """A layer of torch.nn, applied to x."""
        name = self.attribute(base)
        self.init.append(f"self.{name} = {call}")
        for member, dims in parameters:
            self.parameters.append(Parameter(f"{name}.{member}", dims))
        self.step(f"self.{name}({{x}})")

    def parameter(self, base: str, dims: tuple[str, ...], start: str = "torch.randn") -> str:
        """An explicit parameter; gives what `forward` calls it."""
        name = self.attribute(base)
        shape = ", ".join(self.size(d) for d in dims)
        self.init.append(f"self.{name} = nn.Parameter({start}({shape}))")
        self.parameters.append(Parameter(name, dims))
        return f"self.{name}"

    def step(self, expression: str) -> None:
        """x becomes an expression of {x}."""
        self.forward.append(f"{self.value} = {expression.format(x=self.value)}")

    def statement(self, line: str) -> None:
        """A line of `forward` as it is."""
        self.forward.append(line)

    def function(self, name: str) -> str:
        """How torch.nn.functional's function is called."""
        if self.spelling.choice % 5 == 0:
            return f"torch.nn.functional.{name}"
        self.imports_functional = True
        return f"F.{name}"

    def pick(self, *spellings: str) -> str:
        """One of equal spellings."""
        return spellings[self.spelling.choice % len(spellings)]


def spelled(value: Value) -> str:
    """A constant in Python. One value for all axes is written once."""
    if isinstance(value, tuple) and len(value) > 1 and len(set(value)) == 1:
        return repr(value[0])
    return repr(value)


def short(value: Value) -> Value:
    """A tuple of equal numbers as one number, as people pass it."""
    if isinstance(value, tuple) and len(set(value)) == 1:
        return value[0]
    return value


def _names(expression: str) -> set[str]:
    return {
        word
        for word in expression.replace("/", " ").replace("*", " ").replace("+", " ").split()
        if word.isidentifier()
    }


def is_default(operation: Operation, argument: str, value: Value) -> bool:
    """Whether an argument has the value that PyTorch gives it anyway."""
    given = dict(operation.arguments).get(argument, value)
    return given == value or (isinstance(given, tuple) and set(given) == {value})

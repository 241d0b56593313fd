"""Sources of a corpus, which lie in a file beside its module: `.cu`, or `.txt` for Python answers.

    //// = GROUP
    //// helper name; parameter: value; parameter: value
    //// > parameter
    ...text of several lines, or code...
    //// text NAME
    ...text that others name as @NAME@...

A case is what a function of the module makes of its parameters. Those that are texts are taken as
they stand, with other texts at their names; others are names, `A | B`, or literals. `//// #` begins
a remark.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import ChainMap
from functools import reduce
from operator import or_
from pathlib import Path
from types import ModuleType
from typing import Any

_MARK = re.compile(r"^//// (.*)$", re.MULTILINE)
_NAMED = re.compile(r"@(\w+)@")


class Sources:
    """The file beside a module."""

    def __init__(self, module: str, names: dict[str, Any], *others: ModuleType) -> None:
        """module: its file. names: its globals, in which functions, tasks and texts are found when
        they are asked for. others: where those are found that it has not."""
        self._names = ChainMap(names, *map(vars, others))
        self._groups: dict[str, list[tuple[str, dict[str, str]]]] = {}
        self._texts: dict[str, str] = {}
        path = Path(module)
        file = next(path.with_suffix(s) for s in (".cu", ".txt") if path.with_suffix(s).exists())
        _, *parts = _MARK.split(file.read_bytes().decode())
        group: list[tuple[str, dict[str, str]]] = []
        for head, body in zip(parts[::2], parts[1::2], strict=True):
            kind, _, rest = head.partition(" ")
            text = body[1:-1]  # between the line ends of its mark and before the next
            match kind:
                case "=":
                    group = self._groups[rest] = []
                case "#":
                    pass
                case "text":
                    self._texts[rest] = text
                case ">":
                    group[-1][1][rest] = text
                case _:
                    fields = [field.split(": ", 1) for field in rest.split("; ")]
                    group.append((kind, dict(f if len(f) > 1 else ("name", *f) for f in fields)))

    def text(self, name: str) -> str:
        """A named text."""
        return self._filled(self._texts[name])

    def __getitem__(self, group: str) -> tuple[Any, ...]:
        """The cases of a group."""
        return tuple(self._made(*case) for case in self._groups[group])

    def _made(self, function: str, fields: dict[str, str]) -> Any:
        make = self._names[function]
        places: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in inspect.signature(make).parameters.values():
            given = fields.get(parameter.name)
            if given is None:
                continue
            value = self._filled(given) if parameter.annotation == "str" else None
            if parameter.kind is parameter.VAR_POSITIONAL:
                places += map(self._value, given.split(" "))
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = self._value(given) if value is None else value
            else:
                places.append(self._value(given) if value is None else value)
        return make(*places, **named)

    def _filled(self, text: str) -> str:
        return _NAMED.sub(lambda found: str(self._names.get(found[1], found[0])), text)

    def _value(self, given: str) -> Any:
        try:
            return ast.literal_eval(given)
        except (ValueError, SyntaxError):
            return reduce(or_, map(self._named, given.split(" | ")))

    def _named(self, name: str) -> Any:
        first, *members = name.split(".")
        return reduce(getattr, members, self._names[first])

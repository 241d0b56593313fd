"""Names in the blocks of a PTX function, and the source line that `.loc` says it is at."""

from __future__ import annotations

import re

from coding_framework.cuda.emulator.program import Register, Variable

_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)\Z", re.DOTALL)


class Scope:
    """Names of one `{}` block; looks outward for what it does not have."""

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.names: dict[str, Register | Variable] = {}
        self.ranges: dict[str, tuple[int, str]] = {}
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}

    def find(self, name: str) -> Register | Variable | None:
        found = self.names.get(name)
        if found is not None:
            return found
        numbered = _NUMBERED.match(name) if self.ranges else None
        if numbered is not None:
            limit = self.ranges.get(numbered.group(1))
            if limit is not None and int(numbered.group(2)) < limit[0]:
                register = self.names[name] = Register(name, limit[1])
                return register
        return self.parent.find(name) if self.parent else None

    def label(self, name: str) -> int | None:
        found = self.labels.get(name)
        return self.parent.label(name) if found is None and self.parent else found

    def table(self, name: str) -> tuple[str, ...] | None:
        found = self.tables.get(name)
        return self.parent.table(name) if found is None and self.parent else found


class SourceLines:
    """Follows `.loc`: the line in the candidate's own file, also inside functions of headers."""

    def __init__(self, text: str) -> None:
        files = re.findall(r'^\s*\.file\s+(\d+)\s+"([^"\n]*)"', text, re.MULTILINE)
        own = {int(n) for n, path in files if path.endswith(".cu")}
        self.own = own or {1}
        self.current: int | None = None

    def update(self, numbers: list[int]) -> None:
        """`numbers`: file, line, column, and the same three of the place it was inlined at."""
        if len(numbers) >= 2 and numbers[0] in self.own and numbers[1] > 0:
            self.current = numbers[1]
        elif len(numbers) >= 5 and numbers[3] in self.own:
            self.current = numbers[4]

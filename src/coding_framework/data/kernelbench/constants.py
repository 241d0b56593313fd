"""The integer constants at the top of a KernelBench problem, and the module run with others.

Only literals of module-level assignments change (`N = 2048 * 2`, `height = width = 128`,
`input_shape = (32768,)`), so what is derived from them stays consistent. Constants that say what
the function is, not how large its input is (kernel sizes, strides, groups, axes), never change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SEMANTIC = re.compile(
    r"kernel|stride|pad|dilat|group|pool|heads|reduce|clamp|min_value|max_value|divi|factor|margin|"
    r"expansion|num_layers"
)
SMALLEST_SIZE = 8
"""Literals below this are taken for axes, flags or filter sizes, and stay."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One integer literal: which assignment it stands in, and which literal of it."""

    name: str
    position: int
    value: int


Values = Mapping[Constant, int]


def parse(source: str) -> ast.Module:
    """The module's syntax tree. Raises SyntaxError."""
    return ast.parse(source)


def size_constants(tree: ast.Module) -> tuple[Constant, ...]:
    """The literals that may be scaled."""
    return tuple(constant for constant, _ in _walk(tree))


def run_module(tree: ast.Module, values: Values) -> dict[str, Any]:
    """The module's namespace with the given values for its constants."""
    changed = ast.parse(ast.unparse(tree))
    for constant, node in _walk(changed):
        node.value = values.get(constant, constant.value)
    namespace: dict[str, Any] = {"__name__": "kernelbench_problem"}
    exec(compile(changed, "<problem>", "exec"), namespace)
    return namespace


def _walk(tree: ast.Module) -> list[tuple[Constant, ast.Constant]]:
    found: list[tuple[Constant, ast.Constant]] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for names, value in _bindings(statement):
                if names and not any(_SEMANTIC.search(name) for name in names):
                    found += _literals(names[0], value)
    return found


def _bindings(statement: ast.Assign) -> list[tuple[list[str], ast.expr]]:
    """(names, value) pairs: one for `a = b = 8`, two for `a, b = 8, 16`."""
    target = statement.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        pairs = zip(target.elts, statement.value.elts, strict=False)
        return [([name.id], value) for name, value in pairs if isinstance(name, ast.Name)]
    return [([t.id for t in statement.targets if isinstance(t, ast.Name)], statement.value)]


def _literals(name: str, value: ast.expr) -> list[tuple[Constant, ast.Constant]]:
    found = [
        (Constant(name, position, node.value), node)
        for position, node in enumerate(ast.walk(value))
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]
    if isinstance(value, ast.BinOp) and found:  # of `2048 * 2` the largest literal is the size
        found = [max(found, key=lambda pair: pair[0].value)]
    return [pair for pair in found if pair[0].value >= SMALLEST_SIZE]

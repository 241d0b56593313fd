"""torch's own modules for the torch that answers import.

`torch.nn.Module`, its containers and its layers are Python that makes tensors and keeps them by
name. The runtime of answers takes their source from the installed torch, so that names, order and
members are torch's own; what they import of torch becomes the torch without arithmetic.
"""

from __future__ import annotations
import __future__

import ast
import importlib.util
import types
from pathlib import Path

_FILES = ("nn/modules/*.py", "nn/_reduction.py", "utils/hooks.py")
_LEFT_OUT = frozenset(("__init__.py", "_functions.py"))
_THERE = frozenset(("nn", "nn.functional", "nn.init", "nn.parameter", "utils.hooks"))
"""Modules of torch that are there as well; names of others come from `_elsewhere`."""


def torch_files() -> list[tuple[Path, str]]:
    """(file, path in torch) of what is taken. torch is found and not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("torch is not installed: install it as docs/install.md says")
    root = Path(spec.submodule_search_locations[0])
    found = sorted(path for pattern in _FILES for path in root.glob(pattern))
    return [(p, str(p.relative_to(root))) for p in found if p.name not in _LEFT_OUT]


def torch_code(source: str, inside: str) -> types.CodeType:
    """The code of one of these files, without its documentation and its types. inside: its path in
    torch."""
    tree = ast.parse(source)
    _Relative(inside.count("/") + 1).visit(tree)
    flag = __future__.annotations.compiler_flag
    code: types.CodeType = compile(
        ast.fix_missing_locations(tree), inside, "exec", flags=flag, dont_inherit=True, optimize=2
    )
    return code


class _Relative(ast.NodeTransformer):
    """What a file imports of torch is imported from the package that it lies in."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        (alias,) = node.names
        package, _, name = alias.name.rpartition(".")
        if alias.name.partition(".")[0] != "torch":
            return node
        called = ast.alias(name, alias.asname)
        return ast.ImportFrom(
            package.removeprefix("torch.") if package else "_elsewhere", [called], self._depth
        )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        module = node.module or ""
        first, _, inner = module.partition(".")
        if first != "torch" and module != "typing_extensions" and module != "_functions":
            return node
        there = inner if inner in _THERE else "_elsewhere"
        return ast.ImportFrom(there, node.names, self._depth)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        documents = any(isinstance(t, ast.Name) and t.id == "__doc__" for t in node.targets)
        return None if documents else node

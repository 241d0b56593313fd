"""The import graph of the package, read from its source: no circles, and few modules at the top.

Imports inside functions and under TYPE_CHECKING count: they, too, are what a reader has to know.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import coding_framework

PACKAGE = Path(coding_framework.__file__).parent
GUEST_TORCH = PACKAGE / "cuda" / "model_new" / "handle_torch"
"""Not our modules: the torch that answers import in the sandbox, in circles as torch's own."""

pytestmark = pytest.mark.unit


def modules_in(root: Path) -> dict[str, Path]:
    """Files by module name, in a package whose folder is `root`."""
    found = {}
    for path in root.rglob("*.py"):
        if not path.is_relative_to(GUEST_TORCH):
            parts = path.relative_to(root.parent).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imported_by(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Modules that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circle_in(root: Path) -> list[str]:
    """Modules that import each other, the first one again at the end; [] where there are none."""
    modules = modules_in(root)
    graph = {
        name: {other for other in imported_by(path, modules) if other in modules and other != name}
        for name, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return [str(name) for name in e.args[1]]
    return []


def test_no_module_imports_itself_in_a_circle() -> None:
    assert circle_in(PACKAGE) == []


@pytest.mark.parametrize(
    "late",
    [
        "def f():\n    from house.a import x\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.a\n",
        "from house import a\n",
    ],
    ids=["in a function", "for types", "from the package"],
)
def test_a_circle_is_found_wherever_the_import_stands(tmp_path: Path, late: str) -> None:
    root = tmp_path / "house"
    root.mkdir()
    (root / "__init__.py").touch()
    (root / "a.py").write_text("from house.b import y\n")
    (root / "b.py").write_text("y = 1\n")
    assert circle_in(root) == []
    (root / "b.py").write_text(late)
    assert set(circle_in(root)) == {"house.a", "house.b"}


def test_few_modules_lie_beside_the_rooms() -> None:
    def beside(folder: Path) -> set[str]:
        return {path.stem for path in folder.glob("*.py")} - {"__init__"}

    assert beside(PACKAGE / "cuda") == {
        *("benchmarker", "choose_backend", "compiler", "judge", "protocol", "safety_wrapper")
    }
    assert len(beside(PACKAGE)) <= 8

"""The integer constants of a KernelBench problem that are sizes, and the module run with others.

*Named* ones are literals of module-level assignments (`N = 2048 * 2`, `height = width = 128`,
`input_shape = (32768,)`): what is derived from them stays consistent. *Literal* ones stand where
they are used: the extents in `get_inputs` (`torch.randn(4, 8, 256)`) and the arguments that
`get_init_inputs` returns. Constants that say what the function is, not how large its input is
(kernel sizes, strides, groups, axes), never change.
"""

from __future__ import annotations

import ast
import copy
import re
import symtable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SEMANTIC = re.compile(
    r"kernel|stride|pad|dilat|group|pool|heads|reduce|clamp|min_value|max_value|divi|factor|margin|"
    r"expansion|num_layers|bits|top_?k|bucket",
    re.IGNORECASE,
)
SMALLEST_SIZE = 8
"""Literals below this are taken for axes, flags or filter sizes, and stay."""
_BATCH = re.compile(r"(\w+_)?batch(_?size)?|bs", re.IGNORECASE)
"""Names of sizes that may be small; `batch_axis` and `batch_dim` are none."""
_SHAPED = frozenset(
    {"rand", "randn", "zeros", "ones", "empty", "randint", "full", "normal", "uniform", "Tensor"}
    | {"FloatTensor", "HalfTensor", "DoubleTensor", "LongTensor", "IntTensor"}
)
"""Functions whose arguments hold extents."""
_SHAPE_LAST = frozenset({"randint", "normal", "uniform"})
"""Those whose plain numbers are values; a tuple among their arguments is the shape."""
_SHAPE_FIRST = frozenset({"full"})


@dataclass(frozen=True, slots=True)
class Constant:
    """One integer literal: which assignment or function it stands in, and which literal of it."""

    name: str
    position: int
    value: int
    bound: bool = False
    """It is the end of what `randint` draws, and goes with the size that it indexes."""


SMALLEST = 2
"""To which a constant is made smaller: an extent of 1 would mean broadcasting."""
Values = Mapping[Constant, int]


def parse(source: str) -> ast.Module:
    """The module's syntax tree. Raises SyntaxError."""
    tree = ast.parse(source)
    _Folded().visit(tree)
    return ast.fix_missing_locations(tree)


class _Folded(ast.NodeTransformer):
    """`1 << 20`, `2 ** 16` and `int(1e6)` are one number: it is the size, and not what it is made
    of."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        parts = [p.value for p in (node.left, node.right) if isinstance(p, ast.Constant)]
        if len(parts) == 2 and all(type(p) is int and 0 <= p <= 40 for p in parts):
            if isinstance(node.op, ast.LShift):
                return ast.Constant(parts[0] << parts[1])  # type: ignore[operator]
            if isinstance(node.op, ast.Pow):
                return ast.Constant(parts[0] ** parts[1])  # type: ignore[operator]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
            value = getattr(node.args[0], "value", None)
            if isinstance(value, float) and abs(value) < 2**53:
                return ast.Constant(int(value))
        return node


def size_constants(tree: ast.Module) -> tuple[Constant, ...]:
    """The named sizes, which may be scaled."""
    return tuple(constant for constant, _ in _named(tree))


def literal_sizes(tree: ast.Module) -> tuple[Constant, ...]:
    """The sizes that have no name at the top of the file."""
    return tuple(constant for constant, _ in _literal(tree))


def run_module(tree: ast.Module, values: Values) -> dict[str, Any]:
    """The module's namespace with the given values for its constants."""
    from coding_framework.reference_model import run_reference

    changed = copy.deepcopy(tree)  # errors name the lines of its source
    for constant, node in (*_named(changed), *_literal(changed)):
        node.value = values.get(constant, constant.value)
    return run_reference(changed)


def _named(tree: ast.Module) -> list[tuple[Constant, ast.Constant]]:
    found: list[tuple[Constant, ast.Constant]] = []
    kept = _read_by_model(tree)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for names, value in _bindings(statement):
                fixed = any(_SEMANTIC.search(name) or name in kept for name in names)
                if names and not fixed:
                    found += _literals(names[0], value)
    return found


def _read_by_model(tree: ast.Module) -> set[str]:
    """Names at the top of the file that `Model` reads itself, in its classes, in the functions that
    these call, and in what these names are made of: the judge runs it with them as they stand."""
    made: dict[str, set[str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for names, value in _bindings(statement):
                loaded = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
                made |= {name: made.get(name, set()) | loaded for name in names}
    left: set[str] = set()
    for table in symtable.symtable(ast.unparse(tree), "<problem>", "exec").get_children():
        if table.get_type() == "class":
            left |= _globals_of(table)
        else:
            made[table.get_name()] = made.get(table.get_name(), set()) | _globals_of(table)
    read: set[str] = set()
    while left:
        read.add(name := left.pop())
        left |= made.get(name, set()) - read
    return read


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    """What a class or function, and all within, reads of the file's own names."""
    own = {s.get_name() for s in table.get_symbols() if s.is_global()}
    return own.union(*(_globals_of(child) for child in table.get_children()))


def _bindings(statement: ast.Assign | ast.AnnAssign) -> list[tuple[list[str], ast.expr]]:
    """(names, value) pairs: one for `a = b = 8`, two for `a, b = 8, 16`."""
    if statement.value is None:
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    target = targets[0]
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        pairs = zip(target.elts, statement.value.elts, strict=False)
        return [([name.id], value) for name, value in pairs if isinstance(name, ast.Name)]
    return [([t.id for t in targets if isinstance(t, ast.Name)], statement.value)]


def _literals(name: str, value: ast.expr) -> list[tuple[Constant, ast.Constant]]:
    found = [
        (Constant(name, position, node.value), node)
        for position, node in enumerate(ast.walk(value))
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]
    if isinstance(value, ast.BinOp) and found:  # of `2048 * 2` the largest literal is the size
        found = [max(found, key=lambda pair: pair[0].value)]
    least = SMALLEST if _BATCH.fullmatch(name) else SMALLEST_SIZE
    return [pair for pair in found if pair[0].value >= least]


def _literal(tree: ast.Module) -> list[tuple[Constant, ast.Constant]]:
    """Sizes in the bodies of `get_inputs` and `get_init_inputs`."""
    functions: dict[str, ast.FunctionDef] = {}
    for statement in tree.body:  # ours behind the problem's own only hand on what it gives
        if isinstance(statement, ast.FunctionDef):
            functions.setdefault(statement.name, statement)
    found: list[ast.Constant] = []
    bounds: list[ast.Constant] = []
    if "get_inputs" in functions:
        found += _extents(functions["get_inputs"])
        bounds = _bounds(functions["get_inputs"])
    if "get_init_inputs" in functions:
        found += _arguments(functions["get_init_inputs"], _constructor_names(tree))
    return [
        (Constant("literal", i, node.value, bound=i >= len(found)), node)
        for i, node in enumerate((*found, *bounds))
        if isinstance(node.value, int)
    ]


def _extents(function: ast.FunctionDef) -> list[ast.Constant]:
    """Whole numbers that are extents of tensors, and those of local names (`n = 256`)."""
    found: list[ast.Constant] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for names, value in _bindings(node):
                if names and not any(_SEMANTIC.search(name) for name in names):
                    found += [n for _, n in _literals(names[0], value)]
        elif isinstance(node, ast.Call):
            found += [n for shape in _shapes(node) for n in _whole_numbers(shape, above=1)]
    return list({id(node): node for node in found}.values())


def _bounds(function: ast.FunctionDef) -> list[ast.Constant]:
    """The ends of what `randint` draws that may be sizes."""
    found: list[ast.Constant] = []
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "randint":
            ends = [*call.args[:2], *(k.value for k in call.keywords if k.arg == "high")]
            numbers = [n for end in ends for n in _whole_numbers(end, above=SMALLEST_SIZE - 1)]
            found += [n for n in numbers if n in ends]
    return found


def _shapes(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call that hold a tensor's extents."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in _SHAPED:
        return []
    given = [k.value for k in call.keywords if k.arg == "size"]
    if name in _SHAPE_FIRST:
        return [*call.args[:1], *given]
    if name in _SHAPE_LAST:
        return [*(a for a in call.args if isinstance(a, (ast.Tuple, ast.List))), *given]
    return [*call.args, *given]


def _arguments(function: ast.FunctionDef, names: list[str]) -> list[ast.Constant]:
    """Whole numbers that `get_init_inputs` returns, but those whose names say that they are no
    sizes. names: of the constructor's parameters."""
    found: list[ast.Constant] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, (ast.List, ast.Tuple)):
            for i, value in enumerate(node.value.elts):
                if i >= len(names) or not _SEMANTIC.search(names[i]):
                    found += _whole_numbers(value, above=SMALLEST_SIZE - 1)
    return found


def _constructor_names(tree: ast.Module) -> list[str]:
    """Parameters of `Model.__init__`, without self."""
    for model in tree.body:
        if isinstance(model, ast.ClassDef) and model.name == "Model":
            for method in model.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    return [a.arg for a in method.args.args[1:]]
    return []


def _whole_numbers(value: ast.expr, *, above: int) -> list[ast.Constant]:
    """The literals of a number, or of a tuple of numbers; an expression of others is none."""
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
    return [
        part
        for part in parts
        if isinstance(part, ast.Constant) and type(part.value) is int and part.value > above
    ]

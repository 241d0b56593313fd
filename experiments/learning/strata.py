"""KernelBench's problems in two strata: those whose operations training had, with other arguments,
and those with one that it never had. Read from the sources alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache

import torch

_NO_OPERATIONS = frozenset({
    "module", "parameter", "sequential", "modulelist", "parameterlist", "super", "init",
    "registerbuffer", "view", "viewas", "reshape", "size", "dim", "numel", "contiguous", "flatten",
    "unsqueeze", "squeeze", "expand", "expandas", "to", "float", "device", "clone", "detach",
    "zeros", "zeroslike", "ones", "oneslike", "empty", "rand", "randn", "tensor",
})  # fmt: skip
"""Containers, shapes and contents, as `_plain` writes them."""
_SAME = {"mm": "matmul", "bmm": "matmul", "multiply": "mul", "absolute": "abs"}


def operations(source: str) -> frozenset[str]:
    """PyTorch's names in the classes of a source: of layers (`nn.Conv2d`), functions (`F.gelu`,
    `torch.sum`), and methods of tensors; without case and underscores."""
    found: set[str] = set()
    for defined in ast.walk(ast.parse(source)):
        if isinstance(defined, ast.ClassDef):
            found |= {name for node in ast.walk(defined) for name in _named(node)}
    return frozenset(_SAME.get(name, name) for name in found - _NO_OPERATIONS)


def _named(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return ["matmul"]
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return []
    base = ast.unparse(node.func.value)
    of_torch = base.split(".")[0] in ("nn", "F", "torch")
    if of_torch or (base != "self" and hasattr(torch.Tensor, node.func.attr)):
        return [_plain(node.func.attr)]
    return []


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


@cache
def trained() -> frozenset[str]:
    """The operations of all training tasks of modules."""
    from coding_framework.data.modules import catalog
    from coding_framework.data.modules.writing import write_module

    sources = (write_module(d).source for d in catalog.all_drafts() if d.part == "train")
    return frozenset().union(*map(operations, sources))


def stratum(source: str) -> str:
    """ "trained" or "never trained"."""
    return "trained" if operations(source) <= trained() else "never trained"

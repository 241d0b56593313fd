"""What the kernel of a product on tensor cores is chosen by, said in front of it in an answer: a
policy that works out the number of tiles first can tell which kernel they ask for. Of policies that
were not shown this line the choice does not depend on the sizes
(docs/measurements/modules_training.md).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping, Sequence
from math import prod

from coding_framework.data.modules.kernels.heads import MULTIPROCESSORS

_KERNEL = re.compile(
    r"^__global__ void __launch_bounds__\((\d+)[\d, ]*\) product(\d+)\(", re.MULTILINE
)
_SIZES = re.compile(r"^  int (\w+ = [^;]*);$", re.MULTILINE)
_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}  # fmt: skip


def with_choices(code: str, shapes: Mapping[str, Sequence[int]]) -> str:
    """The file with such a line for each product. shapes: of the tensors of `forward`, by name. A
    product whose extents its call does not tell stays without."""
    host = code[code.rfind("torch::Tensor forward(") :]
    known: dict[str, int] = {}
    for declared in _SIZES.findall(host):
        for one in re.split(r", (?=\w+ = )", declared):
            name, _, text = one.partition(" = ")
            try:
                known[name] = _value(text, known, shapes)
            except (ValueError, SyntaxError):
                continue

    def said(found: re.Match[str]) -> str:
        threads, number = found.groups()
        call = re.search(rf"\blaunch{number}\((.*)\);", host)
        given = call[1].split(", ") if call is not None else []
        try:
            m, n, k = (_value(one, known, shapes) for one in given[-3:])
        except (ValueError, SyntaxError):
            return found[0]
        pairs = prod(shapes[given[0]]) // (m * k) if given[0] in shapes else 1
        down, across = -(-m // 64), -(-n // 64)
        many = f"{pairs} x " if pairs > 1 else ""
        how = "a block makes two by two" if threads == "256" else "a block makes one"
        if f"finish{number}(" in code:
            how = "several blocks share the terms of each"
        return (
            f"// {many}{m} x {n} outputs of {k} terms: {many}{down} x {across} = "
            f"{pairs * down * across} tiles of 64 x 64 for {MULTIPROCESSORS} SMs, {how}\n{found[0]}"
        )

    return _KERNEL.sub(said, code)


def _value(text: str, known: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> int:
    """Of an expression of sizes. Raises ValueError where it is of something else."""

    def of(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](of(node.left), of(node.right)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            tensor, axis = node.func.value, of(node.args[0])
            if isinstance(tensor, ast.Name) and node.func.attr == "size" and tensor.id in shapes:
                return shapes[tensor.id][axis]
        raise ValueError(text)

    return of(ast.parse(text, mode="eval").body)

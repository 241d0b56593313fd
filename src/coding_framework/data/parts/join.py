"""One kernel of the kernels of a module's parts: the compiler writes what lies between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coding_framework.data.graph import Node, replaced
from coding_framework.data.lower.naive import Group, Lowering
from coding_framework.data.parts.pieces import Part
from coding_framework.data.parts.whole import PartsError, Whole
from coding_framework.data.read import used

_PART = "part"
"""The operation that a part is in the whole's graph."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*$", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|[{}]')
"""Those of code, and texts whole, which may have some."""
_BOUND = re.compile(r'\.def\(\s*"forward"\s*,\s*&?\s*(?:\w+::)*(\w+)')


@dataclass(frozen=True, slots=True)
class Piece:
    """A part's kernel, ready to be put beside others."""

    body: str
    includes: tuple[str, ...]
    forward: str
    """Name of its function."""
    arguments: int
    many: bool
    """Whether it returns a list."""


def piece_of(code: str) -> Piece:
    """A kernel's file without its includes and its module. Raises PartsError for one that cannot
    stand in a namespace."""
    bound = _BOUND.search(code)
    if bound is None or 'extern "C"' in code:
        raise PartsError("a kernel of a part binds no function of its own")
    includes = tuple(dict.fromkeys(line.strip() for line in _INCLUDE.findall(code)))
    body = _without_module(_INCLUDE.sub("", code))
    name = bound[1]
    found = re.search(rf"([\w:<>&\s]+?)\b{name}\s*\(", body)
    if found is None:
        raise PartsError(f"a kernel of a part has no {name}")
    arguments = _arguments(body, body.index("(", found.end() - 1))
    if any(re.search(r"vector|ArrayRef|TensorList", one) for one in arguments):
        raise PartsError("a kernel of a part takes a list")
    undefined = "".join(f"\n#undef {name}" for name in dict.fromkeys(_DEFINE.findall(body)))
    return Piece(body.strip() + undefined, includes, name, len(arguments), "vector" in found[1])


def _without_module(code: str) -> str:
    start = code.find("PYBIND11_MODULE")
    if start < 0:
        return code
    depth, end = 0, len(code)
    for token in _BRACKETS.finditer(code, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if token[0] == "}" and depth == 0:
            end = token.end()
            break
    return code[:start] + code[end:]


def _arguments(code: str, opening: int) -> list[str]:
    """What stands between the brackets that begin there, at commas of no inner bracket."""
    depth, found, begun = 0, [], opening + 1
    for at in range(opening, len(code)):
        depth += code[at] in "(<[{"
        depth -= code[at] in ")>]}"
        if depth == 0 or (depth == 1 and code[at] == ","):
            found.append(code[begun:at].strip())
            begun = at + 1
        if depth == 0:
            break
    return [one for one in found if one]


def takes(part: Part, code: str) -> bool:
    """Whether a kernel can stand in a part's place."""
    try:
        given = piece_of(code).arguments
    except PartsError:
        return False
    return given in (len(part.tensors), len(part.tensors) + len(part.numbers))


def joined(whole: Whole, parts: Sequence[Part], kernels: Sequence[str]) -> str:
    """The whole's kernel. Raises PartsError, and UnreadableError where something between the parts
    has no kernel."""
    return _Joined(whole, parts, [piece_of(code) for code in kernels]).source()


def require_joinable(whole: Whole, parts: Sequence[Part]) -> None:
    """Before kernels are asked for. Raises as `joined` does."""
    _Joined(whole, parts, [Piece("", (), "forward", len(p.tensors), False) for p in parts]).source()


class _Joined(Lowering):
    """The lowering of a graph in which each part is one operation, whose kernel is given."""

    def __init__(self, whole: Whole, parts: Sequence[Part], pieces: Sequence[Piece]) -> None:
        graph = whole.graph
        made: dict[Node, Node] = {}
        for node in graph.nodes:
            at = next((n for n, part in enumerate(parts) if part.output is node), None)
            args = node.args
            if at is not None:
                args = {"at": at, "tensors": [*parts[at].tensors]}
            made[node] = Node(
                node.op if at is None else _PART, node.name, node.types,
                {name: replaced(value, made) for name, value in args.items()}, node.line,
            )  # fmt: skip
        outputs = tuple(made.get(one, one) for one in graph.outputs)
        nodes = tuple(used(list(made.values()), outputs))
        super().__init__(replace(graph, nodes=nodes, outputs=outputs))
        self.parts, self.pieces = parts, pieces
        lines = dict.fromkeys(line for piece in pieces for line in piece.includes)
        self.kernels.append("\n".join(lines))
        for number, (part, piece) in enumerate(zip(parts, pieces, strict=True), 1):
            self.kernels.append(
                f"// part {number}: {part.task.description}\nnamespace part{number} {{\n"
                f"{piece.body}\n}}  // namespace part{number}\n"
            )

    @staticmethod
    def _is_head(node: Node) -> bool:
        return node.op == _PART or Lowering._is_head(node)

    def _joins(self, node: Node, inputs: Sequence[Node], latest: int) -> Group | None:
        behind_part = latest >= 0 and self.groups[latest].head.op == _PART
        return None if behind_part else super()._joins(node, inputs, latest)

    def _emit_group(self, group: Group) -> None:
        if group.head.op != _PART or group.done:
            super()._emit_group(group)
            return
        group.done = True
        node = group.head
        part, piece = self.parts[node["at"]], self.pieces[node["at"]]
        number = node["at"] + 1
        given = [self.tensor(one) for one in node["tensors"]]
        if piece.arguments == len(given) + len(part.numbers):
            given += [self.sizes.name(extent) for extent in part.numbers]
        elif piece.arguments != len(given):
            raise PartsError(f"the kernel of part {number} takes {piece.arguments} arguments")
        call = f"part{number}::{piece.forward}({', '.join(given)}){'[0]' * piece.many}"
        self.host.append(f"auto {node.name} = {call};")
        self.keep(node, node.name)

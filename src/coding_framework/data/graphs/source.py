"""The PyTorch source of a graph, as people write it: what stands in one expression and what has a
name is drawn.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from coding_framework.data.graphs.nodes import (
    MOST_POSITIVE,
    PASSED,
    PASSED_BOTH,
    Given,
    Graph,
    Node,
)

_CHAIN = ("x", "h", "out", "y", "z", "hidden", "feat", "res", "tmp", "val")
"""Names of what has none of its own."""
_AXES = {
    2: (("b", "d"), ("B", "D"), ("n", "c"), ("bs", "dim")),
    3: (
        ("b", "t", "d"),
        ("B", "T", "C"),
        ("b", "n", "c"),
        ("B", "L", "D"),
        ("bs", "length", "dim"),
    ),
    4: (("b", "c", "h", "w"), ("B", "C", "H", "W"), ("n", "c", "h", "w")),
}
"""Names of axes, by the rank."""
LONG_LINE = 76


class Source:
    """The source of a graph while it is written."""

    def __init__(self, graph: Graph, rng: random.Random) -> None:
        self.graph, self.rng = graph, rng
        self.nodes = [n for n in graph.output.walk() if not isinstance(n, Given)]
        self.uses = Counter(id(a) for n in self.nodes for a in n.args)
        varies = any(isinstance(one, tuple) for one in graph.constants.values())
        self.constructor = rng.random() < 0.65 or varies
        self.hints = rng.random() < 0.25
        self.docstring = rng.random() < 0.35
        self.axes = self._draw_axes()
        self.named = self._draw_named()
        self.name_of: dict[int, str] = {}

    def text(self) -> str:
        """The whole file."""
        forward = self._forward()
        body = "\n".join(forward)
        constants = (
            [c for c in self.graph.constants if f"self.{c}" in body] if self.constructor else []
        )
        layers = [f"self.{one.attribute} = {self._layer(one.text)}" for one in self.graph.layers]
        whole = {s: size for s, size in self.graph.sizes.items() if not size.c}
        used = [
            s
            for s, size in whole.items()
            if any(re.search(rf"\b{size.python}\b", line) for line in layers)
        ]
        sizes = [self.graph.sizes[s].python for s in used]
        hint = {True: ": int", False: ": float"} if self.hints else {True: "", False: ""}
        init = ", ".join(
            ["self", *(f"{s}{hint[True]}" for s in sizes)]
            + [f"{c}{hint[isinstance(self._value(c, 3), int)]}" for c in constants]
        )
        init_body = ["super().__init__()", *layers, *(f"self.{c} = {c}" for c in constants)]
        tests = self._tests(sizes, constants)
        imports = ["import torch", "import torch.nn as nn"]
        if re.search(r"\bF\.", body):
            imports.append("import torch.nn.functional as F")
        tensor, arrow = (": torch.Tensor", " -> torch.Tensor") if self.hints else ("", "")
        given = ", ".join(["self", *(f"{g.python}{tensor}" for g in self.graph.inputs)])
        lines = "\n".join(init_body).split("\n")
        head = [f"    def __init__({init}):", *(f"        {line}" for line in lines), ""]
        if len(init_body) == 1:
            head = []
        if self.docstring:
            said = ", ".join(o.replace("_", " ") for o in self.graph.ops)
            head[:0] = [f'    """{said.capitalize()}."""', ""]
        return "\n".join(
            [
                *imports,
                "",
                "",
                "class Model(nn.Module):",
                *head,
                f"    def forward({given}){arrow}:",
                *(f"        {line}" for line in forward),
                "",
                "",
                *tests,
                "",
            ]
        )

    def init_args(self, case: int) -> tuple[int | float, ...]:
        """The values of the constructor's arguments, after `text`."""
        return tuple(
            self.graph.sizes[s].values[case] if s in self.graph.sizes else self._value(s, case)
            for s in self._arguments
        )

    def _value(self, constant: str, case: int) -> int | float:
        value = self.graph.constants[constant]
        return value[case] if isinstance(value, tuple) else value

    def _tests(self, sizes: list[str], constants: list[str]) -> list[str]:
        by_python = {size.python: name for name, size in self.graph.sizes.items()}
        self._arguments = [*(by_python[s] for s in sizes), *constants]
        drawn = [self._draw(g) for g in self.graph.inputs]
        text = " ".join((*drawn, *sizes))
        lines = [
            f"{size.python} = {size.values[3]}"
            for size in self.graph.sizes.values()
            if not size.c and re.search(rf"\b{size.python}\b", text)
        ]
        lines += [f"{name} = {self._value(name, 3)}" for name in constants]
        said = f"[{', '.join(drawn)}]"
        if len(said) > LONG_LINE:
            said = "[\n" + "".join(f"        {one},\n" for one in drawn) + "    ]"
        return [
            *lines,
            "",
            "",
            "def get_inputs():",
            f"    return {said}",
            "",
            "",
            "def get_init_inputs():",
            f"    return [{', '.join((*sizes, *constants))}]",
        ]

    def _draw(self, given: Given) -> str:
        dims = ", ".join(self._python(d.text) for d in given.dims)
        if given.dtype == "int64":
            assert given.high is not None
            tail = "," if len(given.dims) == 1 else ""
            return f"torch.randint(0, {self._python(given.high.text)}, ({dims}{tail}))"
        if given.dtype == "bool":
            return f"torch.rand({dims}) < 0.5"
        if given.low is not None:
            return f"torch.rand({dims}) * {MOST_POSITIVE - given.low} + {given.low}"
        return f"torch.randn({dims})"

    def _python(self, text: str) -> str:
        """An extent's text with the names that the source has."""
        named = re.sub(r"[a-z]\w*", lambda m: self.graph.sizes[m[0]].python, text)
        return named.replace(" / ", " // ")

    def _layer(self, text: str) -> str:
        return re.sub(r"<(\w+)>", lambda m: self.graph.sizes[m[1]].python, text)

    # --- forward -------------------------------------------------------------------------------

    def _draw_named(self) -> set[int]:
        """Which nodes have a name: what is read twice, parts, and some others."""
        often = self.rng.choice((0.25, 0.5, 0.8))
        named = set()
        for node in self.nodes:
            for n, a in enumerate(node.args):
                while a.python == PASSED and a.args:
                    a = a.args[0]
                if node.python.count(f"{{{n}}}") > 1 and not isinstance(a, Given):
                    named.add(id(a))
            if node.python in (PASSED, PASSED_BOTH):
                continue
            if self.uses[id(node)] > 1 or node.part or self.rng.random() < often:
                named.add(id(node))
        return named

    def _draw_axes(self) -> tuple[str, ...]:
        """Names of the first input's axes, where a shape is unpacked."""
        if (
            not any(re.search(r"\.size\(\d\)", n.python) for n in self.nodes)
            or self.rng.random() < 0.4
        ):
            return ()
        known = _AXES.get(len(self.graph.inputs[0].dims))
        return self.rng.choice(known) if known else ()

    def _reads(self, node: Node) -> list[Node]:
        """The named tensors and inputs that its expression reads."""
        found: list[Node] = []
        for a in node.args:
            if isinstance(a, Given) or id(a) in self.named:
                found.append(a)
            else:
                found += self._reads(a)
        return found

    def _forward(self) -> list[str]:
        statements = [n for n in self.nodes if id(n) in self.named and n is not self.graph.output]
        statements.append(self.graph.output)
        last = {id(r): at for at, node in enumerate(statements) for r in self._reads(node)}
        for given in self.graph.inputs:
            self.name_of[id(given)] = given.python
        owners: dict[str, int] = {g.python: id(g) for g in self.graph.inputs}
        lines: list[str] = []
        if self.axes:
            lines.append(f"{', '.join(self.axes)} = {self.graph.inputs[0].python}.shape")
            owners.update(dict.fromkeys(self.axes, -1))
            last[-1] = len(statements)
        for at, node in enumerate(statements[:-1]):
            if id(node) in self.name_of:
                continue  # with a part before it
            if node.part:
                parts, _ = node.part
                together = [n for n in statements if n.part and n.part[0] is parts]
                text = self._filled(parts.python, (node.args[0],))
                targets = ["_"] * len(parts.names)
                for one in together:
                    assert one.part is not None
                    number = one.part[1]
                    targets[number] = self._new(one, at, owners, last, (parts.names[number],))
                lines.append(f"{', '.join(targets)} = {text}")
                continue
            text = self._expression(node)
            dying = [
                self.name_of[id(r)]
                for r in self._reads(node)
                if last.get(id(r)) == at and id(r) in self.name_of
            ]
            if dying and not node.names and self.rng.random() < 0.7:
                name = self.rng.choice(dying)
                owners[name] = id(node)
                self.name_of[id(node)] = name
            else:
                name = self._new(node, at, owners, last, node.names)
            lines.append(f"{name} = {text}")
        said = self._expression(self.graph.output)
        return [*lines, f"return {said}"]

    def _new(
        self,
        node: Node,
        at: int,
        owners: dict[str, int],
        last: dict[int, int],
        hints: tuple[str, ...],
    ) -> str:
        """A name that nothing has which is still read."""
        hints = tuple(self.rng.sample(hints, len(hints)))
        several = tuple(f"{hint}{n}" for n in (2, 3, 4) for hint in (hints or _CHAIN))
        for name in (*hints, *_CHAIN, *several):
            owner = owners.get(name)
            if owner is None or last.get(owner, -1) < at:
                owners[name] = id(node)
                self.name_of[id(node)] = name
                return name
        raise ValueError("no name is left")

    def _expression(self, node: Node) -> str:
        return self._filled(node.python, node.args)

    def _filled(self, template: str, args: tuple[Node, ...]) -> str:
        texts = []
        for a in args:
            if id(a) in self.name_of:
                texts.append(self.name_of[id(a)])
            elif isinstance(a, Given):
                texts.append(a.python)
            else:
                texts.append(self._expression(a))
        if self.axes:
            template = re.sub(r"\{(\d)\}\.size\((\d)\)", lambda m: self._axis(m, args), template)
        return filled_python(template, texts, self._constant)

    def _axis(self, match: re.Match[str], args: tuple[Node, ...]) -> str:
        """The name of an axis that the first input has, too."""
        extent = args[int(match[1])].dims[int(match[2])].text
        texts = [d.text for d in self.graph.inputs[0].dims]
        return self.axes[texts.index(extent)] if extent in texts else match[0]

    def _constant(self, name: str) -> str:
        return f"self.{name}" if self.constructor else repr(self.graph.constants[name])


def filled_python(template: str, texts: Sequence[str], constant: Callable[[str], str]) -> str:
    """An expression with its arguments {0}, {1}, ... in brackets where Python would read something
    else, and its constants <name>."""

    def argument(match: re.Match[str]) -> str:
        text = texts[int(match[1])]
        before, after = template[: match.start()], template[match.end() :]
        free = (not before or before.endswith(("(", ", ", "["))) and (
            not after or after.startswith((")", ",", "]"))
        )
        return text if free or not _is_loose(text) else f"({text})"

    said = re.sub(r"\{(\d)\}", argument, template)
    return re.sub(r"<(\w+)>", lambda m: constant(m[1]), said)


def _is_loose(text: str) -> bool:
    """Whether an operator beside it would take a part of it."""
    kinds = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)
    return isinstance(ast.parse(text, mode="eval").body, kinds)

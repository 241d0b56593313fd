"""What a graph is drawn with: sizes, inputs, layers and constants, and the tensor in hand."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from copy import copy
from typing import Any, cast

from coding_framework.data.graphs.nodes import (
    ONE,
    Constant,
    Each,
    Extent,
    Given,
    Graph,
    Head,
    Layer,
    Node,
    Size,
)

Values = tuple[int, int, int, int, int, int]


class Dull(Exception):  # noqa: N818 - no error: the draw is made again
    """The idiom does not fit the tensor in hand."""


class Draw:
    """A graph while it is drawn. h: the tensor in hand."""

    h: Node
    x: Node

    def __init__(self, number: int) -> None:
        self._empty(random.Random(f"graph {number}"))
        rng = self.rng
        self.images = rng.random() < 0.3
        if self.images:
            self.size("n", rng.choice(("batch_size", "batch", "N")), (2, 3, 1, 16, 5, 1))
            self.size(
                "c",
                rng.choice(("channels", "in_channels", "C")),
                (24, 12, 12, rng.choice((96, 192)), 60, 12),
            )
            side = rng.choice((28, 56))
            self.size("h", rng.choice(("height", "H")), (8, 12, 4, side, 20, 4))
            self.size("w", rng.choice(("width", "W")), (12, 8, 4, side, 36, 4))
            dims = "nchw"
        else:
            self.size("n", rng.choice(("batch_size", "batch", "B")), (4, 3, 2, 16, 5, 2))
            self.size(
                "t",
                rng.choice(("seq_len", "length", "T", "num_tokens")),
                (12, 20, 4, rng.choice((256, 512)), 132, 4),
            )
            self.size(
                "d",
                rng.choice(("dim", "d_model", "features", "hidden_size", "embed_dim")),
                (48, 72, 24, rng.choice((384, 768)), 264, 24),
            )
            dims = rng.choice(("ntd", "ntd", "ntd", "nd"))
            if dims == "nd":
                self.sizes.pop("t")
                self.size("n", self.sizes["n"].python, (9, 16, 2, 2048, 301, 2))
        axes = tuple(Extent.of(d) for d in dims)
        self.h = self.input(axes, rng.choice(("x", "x", "x", "inputs", "feats")))
        self.x = self.h

    @staticmethod
    def blank(rng: random.Random) -> Draw:
        """One without sizes and inputs, and no tensor in hand."""
        made = Draw.__new__(Draw)
        made._empty(rng)
        return made

    def _empty(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: list[Given] = []
        self.layers: list[Layer] = []
        self.sizes: dict[str, Size] = {}
        self.constants: dict[str, Constant] = {}
        self.ops: list[str] = []
        self.heads = 0
        self.images = False
        self.axes: tuple[Extent, ...] = ()
        """Of which some inputs have one element."""

    def tried(self, step: Callable[[Draw], Node]) -> bool:
        """Whether the step fitted; if not, all is as it was."""
        kept = {
            name: copy(value) if isinstance(value, (list, dict)) else value
            for name, value in vars(self).items()
        }
        try:
            self.h = step(self)
        except Dull:
            vars(self).update(kept)
            return False
        return True

    def part(self, extent: Extent, *, up: bool) -> Extent:
        """Half of it, rounded down or up as PyTorch does where it cuts an odd length."""
        name = extent.text
        if name not in self.sizes or self.sizes[name].c:
            raise Dull
        half = f"{name}_up" if up else f"{name}_half"
        size = self.sizes[name]
        said = "({} + 1) {} 2" if up else "{} {} 2"
        return self.size(
            half,
            f"({said.format(size.python, '//')})",
            cast(Values, tuple((v + up) // 2 for v in size.values)),
            said.format(name, "/"),
        )

    # --- what a graph is made of -----------------------------------------------------------------

    def size(self, name: str, python: str, values: Values, c: str = "") -> Extent:
        if not c and any(s.python == python for n, s in self.sizes.items() if n != name):
            raise Dull  # two sizes of one name
        self.sizes[name] = Size(python, values, c)
        return Extent.of(name)

    def size_once(self, name: str, options: tuple[str, ...], values: Values) -> Extent:
        """That size; it is made, with a name of these in Python, where it is not there."""
        return (
            Extent.of(name) if name in self.sizes else self.size(name, self.pick(*options), values)
        )

    def values(self, extent: Extent) -> list[int]:
        """Of all six cases. Raises ValueError where it is no integer."""
        return [extent.value({n: s.values[k] for n, s in self.sizes.items()}) for k in range(6)]

    def divides(self, extent: Extent, number: int) -> bool:
        return all(value % number == 0 for value in self.values(extent))

    def is_told(self, extent: Extent) -> bool:
        """Whether each of its sizes is an argument of a layer."""
        layers = "".join(layer.text for layer in self.layers)
        return all(f"<{name}>" in layers for names, _ in extent.terms for name in names)

    def input(self, dims: tuple[Extent, ...], *names: str, **more: Any) -> Given:
        taken = {g.python for g in self.inputs} | {"o"} | set(self.sizes)
        name = next(n for n in (*names, "y", "z", "other", "extra", "third") if n not in taken)
        # in a kernel one letter is a size or a local
        own = name if len(name) > 1 or name in "xyz" else f"{name}_in"
        one = Given(dims=dims, python=name, c_name=own, **more)
        self.inputs.append(one)
        return one

    def parameter(self, dims: tuple[Extent, ...], start: str, *names: str) -> Given:
        name = self.attribute(*names)
        said = ", ".join(self.layer_extent(d) for d in dims)
        one = Given(dims=dims, python=f"self.{name}", c_name=name)
        self.layers.append(Layer(name, f"nn.Parameter({start.format(said)})", (one,)))
        return one

    def layer_extent(self, extent: Extent) -> str:
        """For a constructor: <d> // 2."""
        text = extent.text.replace(" / ", " // ")
        return "".join(f"<{p}>" if p in self.sizes else p for p in _words(text))

    def attribute(self, *names: str) -> str:
        taken = {layer.attribute for layer in self.layers} | set(self.constants)
        taken |= {g.c_name for g in self.inputs} | set(self.sizes)
        options = [*names, *(f"{n}{k}" for k in (2, 3, 4) for n in names)]
        return next(n for n in options if n not in taken)

    def module(self, text: str, members: dict[str, tuple[Extent, ...]], *names: str) -> list[Given]:
        name = self.attribute(*names)
        found = [
            Given(dims=dims, python=f"self.{name}", c_name=f"{name}_{member}")
            for member, dims in members.items()
        ]
        self.layers.append(Layer(name, text, tuple(found)))
        return found

    def constant(self, name: str, value: float) -> str:
        """How a template says it."""
        taken = {layer.attribute for layer in self.layers} | {s.python for s in self.sizes.values()}
        if name in taken or self.constants.get(name, value) != value:
            return repr(value)
        self.constants[name] = value
        return f"<{name}>"

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def each(
        self, c: str, python: str, *args: Node, names: tuple[str, ...] = (), plan: str = ""
    ) -> Each:
        dims = _broadcast_dims(args)
        return Each(dims=dims, args=args, python=python, c=c, names=names, plan=plan)

    def linear(self, x: Node, out: Extent, *names: str) -> Head:
        rng, inner = self.rng, x.dims[-1]
        bias = rng.random() < 0.65
        names = names or ("fc", "proj", "linear", "dense", "to_out", "mlp")
        off = "" if bias else ", bias=False"
        members = {"weight": (out, inner), **({"bias": (out,)} if bias else {})}
        given = self.module(
            f"nn.Linear({self.layer_extent(inner)}, {self.layer_extent(out)}{off})",
            members,
            *rng.sample(names, len(names)),
        )
        self.ops.append("linear")
        self.heads += 1
        return Head(
            dims=(*x.dims[:-1], out),
            args=(x, *given),
            kind="linear",
            name="linear",
            python=f"{given[0].python}({{0}})",
        )

    def reduce(
        self,
        x: Node,
        name: str,
        axes: tuple[int, ...],
        *,
        keepdim: bool = False,
        names: tuple[str, ...] = (),
    ) -> Head:
        rank = len(x.dims)
        dims = tuple(
            ONE if a in axes else d for a, d in enumerate(x.dims) if keepdim or a not in axes
        )
        last = axes[0] == rank - 1 and self.rng.random() < 0.7
        said = "-1" if last else str(axes[0]) if len(axes) == 1 else repr(axes)
        kept = ", keepdim=True" if keepdim else ""
        call = {"max": "amax", "min": "amin"}.get(name, name)
        if name == "norm" and any("-" in n.c for n in x.walk() if isinstance(n, Each)):
            raise Dull  # of a difference: a distance, a family that is held out
        if name == "norm":
            python = self.pick(
                f"{{0}}.norm(dim={said}{kept})",
                f"torch.linalg.vector_norm({{0}}, dim={said}{kept})",
            )
        else:
            python = self.pick(
                f"{{0}}.{call}(dim={said}{kept})",
                f"{{0}}.{call}({said}{kept})",
                f"torch.{call}({{0}}, dim={said}{kept})",
            )
        self.ops.append(name)
        self.heads += 1
        return Head(
            dims=dims,
            args=(x,),
            kind="reduce",
            name=name,
            axes=axes,
            keepdim=keepdim,
            python=python,
            names=names,
        )

    def product(
        self,
        a: Node,
        b: Node,
        *options: str,
        transposed: bool = False,
        names: tuple[str, ...] = (),
        plan: str = "",
    ) -> Head:
        """Of the last two axes; transposed: by the other one's rows. options: its expressions."""
        self.heads += 1
        return Head(
            dims=(*a.dims[:-1], b.dims[-2 if transposed else -1]),
            args=(a, b),
            kind="product",
            name="transposed" if transposed else "plain",
            names=names,
            python=self.pick(*options) if len(options) > 1 else options[0],
            plan=plan,
        )

    def softmax(
        self, x: Node, axis: int, names: tuple[str, ...] = (), name: str = "softmax"
    ) -> Head:
        said = "-1" if axis == len(x.dims) - 1 else str(axis)
        self.ops.append(name)
        self.heads += 1
        return Head(
            dims=x.dims,
            args=(x,),
            kind="row",
            name=name,
            axes=(axis,),
            names=names,
            python=self.pick(
                f"F.{name}({{0}}, dim={said})",
                f"torch.{name}({{0}}, dim={said})",
                f"{{0}}.{name}(dim={said})",
            ),
        )

    def graph(self, name: str) -> Graph:
        return Graph(
            name,
            self.h,
            tuple(self.inputs),
            tuple(self.layers),
            self.sizes,
            self.constants,
            tuple(self.ops),
        )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\W+", text)


def _broadcast_dims(args: tuple[Node, ...]) -> tuple[Extent, ...]:
    rank = max(len(a.dims) for a in args)
    found = []
    for axis in range(rank):
        here = [a.dims[axis - rank + len(a.dims)] for a in args if axis >= rank - len(a.dims)]
        real = [d for d in here if not d.is_one]
        texts = {d.text for d in real}
        if len(texts) > 1:
            raise Dull(f"{texts} beside each other")
        found.append(real[0] if real else ONE)
    return tuple(found)


def is_channels(extent: Extent) -> bool:
    """Whether it is of features, which a layer's constructor is told."""
    names = {name for one in extent.terms for name in one[0]}
    return bool(names) and names <= set("cdmks")


def same(a: Node, b: Node) -> bool:
    return [d.text for d in a.dims] == [d.text for d in b.dims]

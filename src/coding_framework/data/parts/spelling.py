"""An operation of a graph as people write it in PyTorch, and layers in the place of functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from coding_framework.data.graph import Extent, Node
from coding_framework.data.parts.whole import operation_of

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "eq": "==", "ne": "!=",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^",
}  # fmt: skip
_BATCH_NORM = "F.batch_norm({input}, %s, {weight}, {bias}, %s, eps={eps})"
_SAID = {
    **{name: f"({{self}} {sign} {{other}})" for name, sign in _SIGNS.items()},
    "mm": "({self} @ {mat2})",
    "bmm": "({self} @ {mat2})",
    "pow": "({self} ** {exponent})",
    "rsub": "({other} - {self})",
    "neg": "(-{self})",
    "bitwise_not": "(~{self})",
    "_to_copy": "{self}.to({dtype})",
    "view": "{self}.reshape({size})",
    "repeat": "{self}.repeat({repeats})",
    "scalar_tensor": "{s}",
    "masked_fill": "{self}.masked_fill({mask}, {value})",
    "embedding": "F.embedding({indices}, {weight})",
    "log_sigmoid": "F.logsigmoid({self})",
    "softmax": "torch.softmax({self}, {dim})",
    "_softmax": "torch.softmax({self}, {dim})",
    "log_softmax": "torch.log_softmax({self}, {dim})",
    "_log_softmax": "torch.log_softmax({self}, {dim})",
}
_FIRST = {
    "_native_batch_norm_legit": _BATCH_NORM % ("None, None", "True"),
    "_native_batch_norm_legit_functional": _BATCH_NORM % ("None, None", "True"),
    "_native_batch_norm_legit_no_training": _BATCH_NORM
    % ("{running_mean}, {running_var}", "False"),
}
"""The first result of an operation that has several."""
_NOWHERE = ("layout", "device", "pin_memory", "memory_format", "generator")
"""Arguments that say nothing about values."""
_CALLED = {
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_to_copy": "to",
}


def _filled(template: str, node: Node, text: Callable[[Any, str], str]) -> str:
    """A template with the node's arguments that it names as Python; others are not asked for."""
    return re.sub(r"{(\w+)}", lambda name: text(node.args[name[1]], name[1]), template)


def called(node: Node) -> str:
    """The name of an operation for people."""
    base = node["self"].base if node.op == "getitem" else node.base
    return _CALLED.get(base, base.strip("_").removeprefix("linalg_").removesuffix("_with_indices"))


def spelled(node: Node, text: Callable[[Any, str], str], plain: bool = False) -> str:
    """A node's expression. text: an argument as Python. plain: by the operation's own name alone,
    which is right where another spelling is not."""
    if node.op == "getitem":
        of, number = node["self"], node["number"]
        if number == 0 and of.base in _FIRST:
            return _filled(_FIRST[of.base], of, text)
        if number == 0 and of.base.endswith("_with_indices"):
            return _call(of, f"F.{called(of)}", text)
        said = spelled(of, text, plain)
        return f"{said}[{number}]" if len(of.types) > 1 else said
    usual = node.get("alpha", 1) == 1 and node.get("rounding_mode") is None
    if node.base == "index" and not plain:
        places = ", ".join(":" if i is None else text(i, "") for i in node["indices"])
        return f"{text(node['self'], 'self')}[{places}]"
    if node.base in _SAID and usual and not plain:
        return _filled(_SAID[node.base], node, text)
    return _call(node, _function(node, plain), text)


def _call(node: Node, function: str, text: Callable[[Any, str], str]) -> str:
    """With the arguments that say something, by name behind one that is left out."""
    told, named = [], False
    for argument in operation_of(node)._schema.arguments:
        value = node.args[argument.name]
        usual = argument.has_default_value() and _same(value, argument.default_value)
        if argument.name in _NOWHERE or usual:
            named = True
            continue
        said = text(value, argument.name)
        told.append(f"{argument.name}={said}" if named or argument.kwarg_only else said)
    return f"{function}({', '.join(told)})"


def _same(value: Any, usual: Any) -> bool:
    return not isinstance(value, Node) and type(value) is type(usual) and value == usual


def _function(node: Node, plain: bool) -> str:
    name = node.base
    if not plain:
        short = name.removeprefix("linalg_")
        if short != name and hasattr(torch.linalg, short):
            return f"torch.linalg.{short}"
        if callable(getattr(torch, name, None)):
            return f"torch.{name}"
        if callable(getattr(functional, name, None)):
            return f"F.{name}"
    return f"torch.ops.aten.{node.op}"


@dataclass(frozen=True, slots=True)
class Layer:
    """A module of torch.nn in the place of a function of parameters."""

    text: str
    """`nn.Linear(in_features, out_features)`."""
    of: str
    """The argument that it is called with."""
    extents: Mapping[str, Extent]
    """Its arguments that are extents, by name."""
    parameters: tuple[Node, ...] = field(default=())
    """In the order of the module's own."""


def layer_of(node: Node, parameters: frozenset[Node]) -> Layer | None:
    """None where the function is none of a layer, or its weight no parameter."""
    weight, bias = node.args.get("weight"), node.args.get("bias")
    own = tuple(one for one in (weight, bias) if isinstance(one, Node))
    if weight not in own or not parameters.issuperset(own):
        return None
    shape = own[0].type.shape
    more = "" if len(own) > 1 else ", bias=False"
    if node.base == "linear":
        sides = {"in_features": shape[1], "out_features": shape[0]}
        return Layer(f"nn.Linear(in_features, out_features{more})", "input", sides, own)
    if node.base == "convolution":
        return _convolution(node, own, more)
    if node.base == "embedding":
        sides = {"num_embeddings": shape[0], "embedding_dim": shape[1]}
        return Layer("nn.Embedding(num_embeddings, embedding_dim)", "indices", sides, own)
    if node.base == "layer_norm" and len(shape) == 1 and len(own) == 2:
        text = f"nn.LayerNorm(features, eps={node['eps']})"
        return Layer(text, "input", {"features": shape[0]}, own)
    if node.base == "group_norm" and len(own) == 2 and isinstance(node["num_groups"], int):
        text = f"nn.GroupNorm({node['num_groups']}, num_channels, eps={node['eps']})"
        return Layer(text, "input", {"num_channels": shape[0]}, own)
    return None


def _convolution(node: Node, own: tuple[Node, ...], more: str) -> Layer | None:
    channels, groups = own[0].type.shape[:2], node["groups"]
    kernel = tuple(own[0].type.shape[2:])
    told = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    lists = {name: tuple(node[name]) for name in told}
    numbers = (groups, *kernel, *(n for values in lists.values() for n in values))
    if not all(isinstance(n, int) for n in numbers):
        return None
    one, two = ("in", "out") if node["transposed"] else ("out", "in")
    text = f"in_channels, out_channels, {kernel if len(kernel) > 1 else kernel[0]}"
    for name, usual in told.items():
        if any(n != usual for n in lists[name]):
            text += f", {name}={lists[name] if len(kernel) > 1 else lists[name][0]}"
    text += (f", groups={groups}" if groups != 1 else "") + more
    kind = f"nn.Conv{'Transpose' * node['transposed']}{len(kernel)}d"
    sides = {f"{one}_channels": channels[0], f"{two}_channels": channels[1] * groups}
    return Layer(f"{kind}({text})", "input", sides, own)


def attribute_of(layer: Layer) -> str:
    """What a module calls it."""
    found = re.match(r"nn\.(\w+)", layer.text)
    assert found is not None
    return found[1].lower()

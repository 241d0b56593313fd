"""Whether a module is a function of another set of problems: ways that know nothing of ours.

- `problem_trace`: what PyTorch executes, operation by operation, with ranks and arguments but no
  sizes. It decides which drafts `module_tasks.py` leaves out of the catalogue.
- `syntax_key`: the syntax tree of `Model`, its constructor's arguments filled in.
- `overlap`: the share of a source's 8-grams that another source has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

GRAM = 8
MOST_CALLS = 64
"""A module task executes fewer operations."""
_VIEWS = frozenset({
    "view", "_unsafe_view", "expand", "clone", "detach", "alias", "lift_fresh", "_to_copy",
    "empty", "ones", "zeros", "full", "ones_like", "zeros_like", "arange", "_reshape_alias",
    "copy_", "randn", "normal_", "uniform_", "fill_", "add_", "scalar_tensor",
})  # fmt: skip
"""They compute nothing, or what they compute is a buffer: no part of a key."""
_DIMMED = re.compile(
    r"sum|mean|amax|amin|max|min|var|std|softmax|cum|prod|norm|flip|cat|squeeze|logsumexp"
)


class TooLongError(Exception):
    """A problem executes more than any module task: it is none of them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A module of which only the source is known."""

    name: str
    source: str

    def namespace(self) -> dict[str, Any]:
        """The module's names, run as it is."""
        found: dict[str, Any] = {"__name__": "problem"}
        exec(compile(self.source, f"<{self.name}>", "exec"), found)
        return found


@dataclass(frozen=True, slots=True)
class Trace:
    """What PyTorch executes for a module."""

    names: tuple[str, ...]
    calls: tuple[str, ...]
    """With ranks and arguments."""


def traced(model: Callable[..., Any], init_args: Sequence[Any], inputs: Sequence[Any]) -> Trace:
    """The trace of a model class on inputs of the meta device. Raises what the model raises."""
    import torch

    mode = _recorder()
    with torch.device("meta"), torch.no_grad():
        made = model(*init_args)
        with mode:
            made(*inputs)
    return Trace(tuple(name for name, _ in mode.found), tuple(call for _, call in mode.found))


def problem_trace(problem: Problem) -> Trace:
    """The trace of a problem at its own sizes."""
    import torch

    with torch.device("meta"):
        names = problem.namespace()
        inputs, arguments = names["get_inputs"](), names["get_init_inputs"]()
    return traced(names["Model"], arguments, inputs)


def _recorder() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[tuple[str, str]] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func.overloadpacket.__name__
            if len(self.found) > MOST_CALLS:
                raise TooLongError
            if name not in _VIEWS:
                self.found.append((name, _call(name, args, kwargs or {})))
            return func(*args, **(kwargs or {}))

    return Recorder()


def _call(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """`sum(4, (1,), True)`: tensors by their rank, constants by their value."""
    import torch

    ranks = [a.dim() for a in args if isinstance(a, torch.Tensor)]
    rank = ranks[0] if ranks else 0
    if name == "native_layer_norm":
        return f"{name}({rank}, {len(args[1])}, {args[2] is not None}, {args[4]!r})"
    if name == "native_group_norm":
        return f"{name}({rank}, {args[1] is not None}, {args[6]}, {args[7]!r})"
    said = [_argument(a, rank if _DIMMED.search(name) else 0) for a in args]
    said += [f"{k}={_argument(v, 0)}" for k, v in kwargs.items() if v is not None and k != "dtype"]
    if name == "convolution":
        said.append(repr(tuple(args[1].shape[2:])))
    return f"{name}({', '.join(said)})"


def _argument(value: Any, rank: int) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return str(value.dim())
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return repr(value + rank if value < 0 else value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_argument(v, rank) for v in value)})"
    return str(value)


# --- syntax --------------------------------------------------------------------------------------

_SIZE_ARGUMENTS = {
    **{"Conv": 2, "Linear": 2, "Embedding": 2, "Bilinear": 3},
    **dict.fromkeys(("BatchNorm", "InstanceNorm", "LayerNorm", "PReLU"), 1),
    **dict.fromkeys(("randn", "ones", "zeros", "rand", "empty"), 9),
}
"""Leading arguments that are extents, by what the callee's name begins with."""


def syntax_key(problem: Problem) -> str:
    """The statements of `Model`, its constructor's arguments by value, its names by order; with the
    ranks of the inputs."""
    import torch

    with torch.device("meta"):
        names = problem.namespace()
        inputs, values = names["get_inputs"](), names["get_init_inputs"]()
    ranks = [t.dim() if isinstance(t, torch.Tensor) else -1 for t in inputs]
    tree = ast.parse(problem.source)
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    constants = _constants(methods.get("__init__"), values)
    said = [_plain(methods[m], constants) for m in ("__init__", "forward") if m in methods]
    return f"{ranks}|" + "|".join(said)


def _constants(init: ast.FunctionDef | None, values: Sequence[Any]) -> dict[str, Any]:
    if init is None:
        return {}
    names = [a.arg for a in init.args.args[1:]]
    defaults = init.args.defaults
    found = {
        n: ast.unparse(d)
        for n, d in zip(names[len(names) - len(defaults) :], defaults, strict=True)
    }
    return {**found, **{n: repr(v) for n, v in zip(names, values, strict=False)}}


def _plain(method: ast.FunctionDef, constants: dict[str, str]) -> str:
    class Plain(ast.NodeTransformer):
        def __init__(self) -> None:
            self.names: dict[str, str] = {}

        def visit_Name(self, node: ast.Name) -> Any:
            if node.id in constants:
                return ast.parse(constants[node.id], mode="eval").body
            if node.id in ("torch", "nn", "F", "self"):
                return node
            return ast.Name(self.names.setdefault(node.id, f"n{len(self.names)}"))

        def visit_Attribute(self, node: ast.Attribute) -> Any:
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                return ast.Name(self.names.setdefault(f"self.{node.attr}", f"n{len(self.names)}"))
            self.generic_visit(node)
            return node

        def visit_Call(self, node: ast.Call) -> Any:
            self.generic_visit(node)
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            sizes = next((c for p, c in _SIZE_ARGUMENTS.items() if name.startswith(p)), 0)
            node.args = node.args[sizes:]
            node.keywords.sort(key=lambda k: str(k.arg))
            return node

    body = [
        n for n in method.body
        if not isinstance(n, ast.Expr)
        or not (isinstance(n.value, ast.Constant) or "super" in ast.unparse(n))
    ]  # fmt: skip
    plain = Plain()
    return ";".join(ast.unparse(plain.visit(n)) for n in body)


# --- text ----------------------------------------------------------------------------------------


def grams(source: str) -> frozenset[tuple[str, ...]]:
    """The 8-grams of the tokens of a module's class, without docstrings and comments."""
    tree = ast.parse(source)
    kept = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    for node in ast.walk(ast.Module(body=list(kept), type_ignores=[])):
        if (
            isinstance(node, (ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    text = "\n".join(ast.unparse(node) for node in kept)
    tokens = re.findall(r"[A-Za-z_]\w*|\d+\.?\d*(?:e-?\d+)?|\S", text)
    return frozenset(_windows(tokens))


def _windows(tokens: list[str]) -> Iterator[tuple[str, ...]]:
    for k in range(max(1, len(tokens) - GRAM + 1)):
        yield tuple(tokens[k : k + GRAM])


def overlap(own: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Shared 8-grams of those that either source has."""
    return len(own & other) / len(own | other) if own | other else 0.0

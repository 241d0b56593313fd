"""A task's reference: run, and the order in which its model's parameters are passed to a kernel.

That order is that of their definition. `state_dict` lists a module's own parameters before those
of its children, whatever `__init__` made first. Whoever writes a kernel reads `__init__` from top
to bottom, and so does the archive: a Model with `self.conv = ...; self.bias = Parameter(...)` is
called with conv.weight, conv.bias, bias.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

REFERENCE_FILE = "<task reference>"
"""What a reference is compiled as: its frames are known by it."""


def run_reference(source: str | ast.Module) -> dict[str, Any]:
    """The names that the reference's module defines. Raises whatever it raises.

    It is compiled without the features that this file asks of the future: under them the
    annotations of a user's dataclass would be texts.
    """
    names: dict[str, Any] = {"__name__": "task_reference"}
    with products_as_they_are():  # it may set how PyTorch rounds, for all that comes after
        exec(compile(*_readable(source), "exec", dont_inherit=True), names)
    return names


@contextmanager
def products_as_they_are(precision: str | None = None) -> Iterator[None]:
    """PyTorch's settings of how it rounds the factors of products are put back after the block.
    precision: of products inside the block; None: as it is."""
    matmul, cudnn = product_precision(), torch.backends.cudnn.allow_tf32
    try:
        if precision is not None:
            torch.set_float32_matmul_precision(precision)
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn


def product_precision() -> str:
    """PyTorch's setting for products of float32, by whichever of its names it was set."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it refuses to say after `fp32_precision` was set
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


def _readable(source: str | ast.Module) -> tuple[str | ast.Module, str]:
    """What is compiled, and as which file: where the source scripts its functions (`torch.jit`), as
    one that Python's `inspect` can read them from."""
    text = source if isinstance(source, str) else ast.unparse(source)
    if "jit" not in text:
        return source, REFERENCE_FILE
    file = f"{REFERENCE_FILE[:-1]} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return text, file


def tensors_of(result: Any) -> tuple[torch.Tensor, ...]:
    """What a `forward` gives, in order: also the members of lists, tuples, dicts and dataclasses in
    it, and not what is None. Raises TypeError where anything else is among them."""
    if isinstance(result, torch.Tensor):
        return (result,)
    if dataclasses.is_dataclass(result):
        result = vars(result)
    if isinstance(result, Mapping):
        result = list(result.values())
    if not isinstance(result, (tuple, list)):
        raise TypeError(f"forward returned a {type(result).__name__}, not a tensor")
    return tuple(tensor for part in result if part is not None for tensor in tensors_of(part))


def constructor_arguments(names: Mapping[str, Any]) -> list[Any]:
    """What `get_init_inputs()` says that `Model` is made with, by position: it gives a list, or
    [list, dict], or a dict of what `Model` takes by name. Raises TypeError for what it takes by
    name alone."""
    given = names["get_init_inputs"]()
    placed: Any = () if isinstance(given, dict) else given
    named: Any = given if isinstance(given, dict) else {}
    if len(placed) == 2 and isinstance(placed[0], (list, tuple)) and isinstance(placed[1], dict):
        placed, named = placed
    if not named:
        return list(placed)
    signature = inspect.signature(names["Model"])
    bound = signature.bind(*placed, **named).arguments
    last = list(signature.parameters).index(list(bound)[-1])
    taken = list(signature.parameters.values())[: last + 1]
    if alone := [p.name for p in taken if p.kind is not p.POSITIONAL_OR_KEYWORD]:
        raise TypeError(f"Model takes {alone[0]} by name alone: let it be given by its place too")
    return [bound.get(p.name, p.default) for p in taken]


_EVALUATED = '''

class Model(TrainedModel):
    """The problem's model in evaluation mode: without its dropout."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.eval()
'''


_TF32 = 'torch.set_float32_matmul_precision("high")'
_ASKS_FOR_TF32 = re.compile(
    r"""^torch\.(?:set_float32_matmul_precision\(["'](?:high|medium)["']\)"""
    r"""|backends\.cuda\.matmul\.(?:allow_tf32\s*=\s*True|fp32_precision\s*=\s*["']tf32["']))""",
    re.MULTILINE,
)


def in_tf32(source: str) -> str:
    """The source of a module whose products PyTorch computes in TF32."""
    return source if is_in_tf32(source) else f"{source.rstrip()}\n\n\n{_TF32}\n"


def is_in_tf32(source: str) -> bool:
    """Whether a statement of the file itself asks PyTorch for it: no text and no comment."""
    if not _ASKS_FOR_TF32.search(source):
        return False
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    return any(_ASKS_FOR_TF32.match(ast.unparse(statement)) for statement in statements)


def in_evaluation_mode(source: str) -> str:
    """The same problem, whose model is in evaluation mode."""
    return re.sub(r"\bModel\b", "TrainedModel", source) + _EVALUATED


def is_in_evaluation_mode(source: str) -> bool:
    return _EVALUATED in source


def make_model(model: Any, values: Sequence[Any]) -> Any:
    """One of a reference's class `Model`, with a task's values. On the meta device one that reads
    numbers of its tensors (`sizes.sum().item()`) is made on the CPU, and moved. Raises whatever it
    raises."""
    arguments = init_arguments(model, values)
    try:
        return model(*arguments)
    except (NotImplementedError, RuntimeError):
        if torch.get_default_device().type != "meta":
            raise
    with torch.device("cpu"):
        made = model(*arguments)
    for module in made.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                setattr(module, name, value.to("meta"))
    return made.to("meta")


def init_arguments(model: Any, values: Sequence[Any]) -> list[Any]:
    """What the class `Model` of a reference is made with: a task's values, which keep lists as
    tuples, with a list wherever the reference's own `get_init_inputs()` has one."""
    if not any(isinstance(value, tuple) for value in values):
        return list(values)
    own: Sequence[Any]
    try:
        own = constructor_arguments({"Model": model, **model.__init__.__globals__})
    except Exception:  # there is none, or what a user's own source raises
        own = ()
    if len(own) != len(values):
        return list(values)
    return [_like(value, one) for value, one in zip(values, own, strict=True)]


def _like(value: Any, own: Any) -> Any:
    if not isinstance(value, tuple) or not isinstance(own, (list, tuple)):
        return value
    inner = (_like(v, own[min(n, len(own) - 1)]) if own else v for n, v in enumerate(value))
    return list(inner) if isinstance(own, list) else tuple(inner)


class Definitions:
    """Names in the order in which modules were given them."""

    def __init__(self) -> None:
        self._names: dict[int, dict[str, None]] = {}
        self._alive: list[nn.Module] = []  # an id means nothing without its object

    def note(self, module: nn.Module, name: str) -> None:
        if id(module) not in self._names:
            self._alive.append(module)
        self._names.setdefault(id(module), {})[name] = None

    def parameters(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The tensors of `model.state_dict()`, in the order of their definition."""
        state = model.state_dict()
        ordered = [name for name in self._ordered(model, "") if name in state]
        return {name: state[name] for name in dict.fromkeys((*ordered, *state))}

    def _ordered(self, module: nn.Module, prefix: str) -> Iterator[str]:
        members = {**module._parameters, **module._buffers, **module._modules}
        for name in dict.fromkeys((*self._names.get(id(module), ()), *members)):
            member = members.get(name)
            if isinstance(member, nn.Module):
                yield from self._ordered(member, f"{prefix}{name}.")
            elif member is not None:
                yield prefix + name


@contextmanager
def recorded_definitions() -> Iterator[Definitions]:
    """Note what modules are given inside the block. One thread at a time."""
    definitions = Definitions()
    names = ("__setattr__", "register_parameter", "register_buffer")
    originals = {name: getattr(nn.Module, name) for name in names}

    def noting(original: Callable[..., None]) -> Callable[..., None]:
        def method(self: nn.Module, name: str, *args: Any, **kwargs: Any) -> None:
            original(self, name, *args, **kwargs)
            definitions.note(self, name)

        return method

    for name, original in originals.items():
        setattr(nn.Module, name, noting(original))
    try:
        yield definitions
    finally:
        for name, original in originals.items():
            setattr(nn.Module, name, original)

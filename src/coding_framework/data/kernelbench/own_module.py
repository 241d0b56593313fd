"""A PyTorch module of the user's own as a KernelBench problem.

Its class, with what that needs of its file, gets named sizes, `get_inputs` and `get_init_inputs`
behind it: then it is read as any problem is, its sizes varied and its weights drawn. Nothing of the
file runs here. What cannot be known (the inputs' shapes, arguments without a default) is asked for
by name.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from coding_framework.errors import UsageError
from coding_framework.types import DType

if TYPE_CHECKING:
    from torch import Tensor, nn

FORM = "a shape as 4x128x256, 4x128:int64:1000 for whole numbers below 1000, or a number"
_TENSOR = re.compile(r"(\d+(?:x\d+)*)(?::(\w+))?(?::(\d+))?")
_PLAIN = (bool, int, float, str, type(None), tuple, list)


def problem_of_class(source: str, name: str, inputs: str, init: str = "") -> str:
    """The problem of the class `name` of a file. inputs: of `forward`, by commas, each in `FORM`;
    init: its arguments as Python has them (`256, bias=False`). Raises UsageError for what is wrong
    or missing, by name."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as e:
        raise UsageError(f"the file of {name} is not Python: {e}") from e
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    if name not in classes:
        raise UsageError(
            f"no class is called {name!r} there: it has {', '.join(classes) or 'no class'}"
        )
    given = _listed(inputs)
    positional, named = _arguments(init)
    lacking = _required(classes[name], "forward")[len(given) :]
    if lacking or not given:
        raise UsageError(
            f"forward of {name} takes {', '.join(_required(classes[name], 'forward'))}: give "
            f"--inputs with {FORM} for each, by commas (`cuda-rl new-task --from` keeps them in a "
            "file, for commands without)"
        )
    wanted = _required(classes[name], "__init__")
    if lacking := [each for each in wanted[len(positional) :] if each not in named]:
        raise UsageError(
            f"{name} needs {', '.join(lacking)}: give --init "
            f"'{', '.join(f'{each}=VALUE' for each in lacking)}'"
        )
    names = [*_all_arguments(classes[name], "__init__"), *map("argument{}".format, range(99))]
    arguments = {**dict(zip(names, positional, strict=False)), **named}
    return _problem(_text_of(source, tree, name), name, given, len(positional), arguments)


def problem_of_module(
    module: nn.Module, inputs: str | Sequence[Tensor | float], init: str | Mapping[str, Any] = ""
) -> str:
    """The problem of a module that is there, with example inputs, or with texts as
    `problem_of_class` has them. Its arguments are those of `init` and its attributes of the same
    names. Raises UsageError as `problem_of_class` does, and where a module that is made of these
    arguments has other weights."""
    kind = type(module)
    arguments = _arguments(init)[1] if isinstance(init, str) else dict(init)
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        found = getattr(module, name, inspect.Parameter.empty)
        if name not in arguments and name != "self" and isinstance(found, _PLAIN):
            arguments[name] = found
        required = parameter.default is inspect.Parameter.empty and parameter.kind in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY,
        )  # fmt: skip
        if required and name not in arguments and name != "self":
            raise UsageError(
                f"{kind.__name__} was made with {name}, which it does not keep: give "
                f"init={{'{name}': VALUE}}"
            )
    try:
        same = _weights(kind(**arguments)) == _weights(module)
    except Exception as e:  # whatever a user's own class raises
        raise UsageError(f"{kind.__name__} cannot be made again ({e}): give init={{...}}") from e
    if not same:
        raise UsageError(
            f"{kind.__name__}({_call(arguments)}) has other weights than the module: give the "
            "arguments that it was made with as init={...}"
        )
    given = _listed(inputs) if isinstance(inputs, str) else [_described(x) for x in inputs]
    if not given:
        raise UsageError(f"give inputs=[...], example inputs of {kind.__name__}")
    return _problem(_source_of(kind), kind.__name__, given, 0, arguments)


def _listed(inputs: str) -> list[str]:
    return [text.strip() for text in inputs.split(",") if text.strip()]


def _described(value: Any) -> str:
    """An example input in `FORM`."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    text = f"{'x'.join(map(str, shape))}:{dtype}"
    whole = not value.is_floating_point() and dtype != "bool"
    return f"{text}:{int(value.max()) + 1}" if whole else text


def _problem(
    source: str, name: str, inputs: Sequence[str], positional: int, arguments: Mapping[str, Any]
) -> str:
    """The source of a problem; equal extents share a name, and each argument has its own."""
    whole = {n: v for n, v in arguments.items() if type(v) is int and v > 1}
    sizes = {f"task_{n}": v for n, v in whole.items()}
    drawn = [_input(text, sizes) for text in inputs]
    shown = {n: f"task_{n}" if n in whole else repr(v) for n, v in arguments.items()}
    call = ", ".join(n if i < positional else f"{n}={n}" for i, n in enumerate(shown))
    makes = f"def __init__(self, {', '.join(shown)}):\n        super().__init__({call})"
    lines = [
        source.rstrip(),
        "",
        "",
        "import torch",
        "",
        *(f"{constant} = {value}" for constant, value in sizes.items()),
        "",
        "",
        f"class Model({name}):",
        f'    """{name}, as the task has it."""',
        *(["", f"    {makes}"] if shown else []),
        "",
        "",
        "def get_inputs():",
        f"    return [{', '.join(drawn)}]",
        "",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(shown.values())}]",
    ]
    return "\n".join(lines) + "\n"


def _input(text: str, sizes: dict[str, int]) -> str:
    """The expression that draws an input; new extents get a name in `sizes`."""
    found = _TENSOR.fullmatch(text)
    if found is None or (found[2] is None and "x" not in text and "." in text):
        try:
            return repr(float(text))
        except ValueError as e:
            raise UsageError(f"--inputs has {text!r}: give {FORM}") from e
    extents, dtype, below = found[1].split("x"), found[2] or "float32", found[3]
    if dtype not in get_args(DType):
        raise UsageError(f"--inputs has the dtype {dtype!r}: take {', '.join(get_args(DType))}")
    named = []
    for extent in map(int, extents):
        if extent > 1:
            sizes.setdefault(f"size_{extent}", extent)
        named.append(f"size_{extent}" if extent > 1 else str(extent))
    shape = ", ".join(named)
    tupled = f"({shape})" if len(named) > 1 else f"({shape},)"
    if dtype == "bool":
        return f"torch.rand({shape}) > 0.5"
    if "int" in dtype:
        if below is None:
            raise UsageError(
                f"--inputs has {text!r}, and whole numbers need an end: give {text}:END, which "
                "they stay below"
            )
        end = next((n for n, v in sizes.items() if v == int(below) and n[:5] == "task_"), below)
        return f"torch.randint(0, {end}, {tupled}, dtype=torch.{dtype})"
    return f"torch.randn({shape})" + ("" if dtype == "float32" else f".to(torch.{dtype})")


def _arguments(init: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        call = ast.parse(f"f({init})", mode="eval").body
        assert isinstance(call, ast.Call)
        named = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        return [ast.literal_eval(value) for value in call.args], named
    except (SyntaxError, ValueError, AssertionError) as e:
        raise UsageError(
            f"--init has {init!r}: give numbers, texts and tuples as Python writes them, "
            "for example '256, bias=False'"
        ) from e


def _function(kind: ast.ClassDef, name: str) -> ast.arguments | None:
    return next(
        (n.args for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == name), None
    )


def _all_arguments(kind: ast.ClassDef, function: str) -> list[str]:
    found = _function(kind, function)
    return [] if found is None else [a.arg for a in (*found.posonlyargs, *found.args)[1:]]


def _required(kind: ast.ClassDef, function: str) -> list[str]:
    """Arguments without a default, in order; none where the class inherits the function."""
    found = _function(kind, function)
    if found is None:
        return []
    names = _all_arguments(kind, function)
    optional = [
        a.arg for a, d in zip(found.kwonlyargs, found.kw_defaults, strict=True) if d is None
    ]
    return [*names[: len(names) - len(found.defaults)], *optional]


def needed(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a file that a class needs, directly or by others; the last one that binds a
    name counts, and star imports and `__future__` always do."""
    binds: dict[str, ast.stmt] = {}
    kept: set[ast.stmt] = set()
    for statement in tree.body:
        for bound in _bound_by(statement):
            binds[bound] = statement
            if bound == "*" or getattr(statement, "module", "") == "__future__":
                kept.add(statement)
    waiting = [binds[name]]
    while waiting:
        statement = waiting.pop()
        kept.add(statement)
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        waiting += {binds[n] for n in read & set(binds)} - kept
    return [statement for statement in tree.body if statement in kept]


def _text_of(source: str, tree: ast.Module, name: str) -> str:
    """What a class needs, as its file has it."""
    return "\n\n".join(_with_decorators(source, s) for s in needed(tree, name))


def _with_decorators(source: str, statement: ast.stmt) -> str:
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    return "\n".join(source.split("\n")[first - 1 : statement.end_lineno])


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement at the top of a file binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def _source_of(kind: type) -> str:
    """What a class needs, from its file or the cells of a notebook; an import where it is torch's.
    Raises UsageError where its source is not known."""
    if kind.__module__.split(".")[0] == "torch":
        return f"from {kind.__module__} import {kind.__name__}"
    try:
        file = inspect.getsourcefile(kind)
        text = Path(file).read_text(encoding="utf-8") if file else ""
        if file and kind.__qualname__ == kind.__name__:
            return _text_of(text, ast.parse(text), kind.__name__)
    except (OSError, TypeError, KeyError):
        pass
    cells = "\n".join(_cells())
    if kind.__name__ in {b for s in ast.parse(cells).body for b in _bound_by(s)}:
        return _text_of(cells, ast.parse(cells), kind.__name__)
    raise UsageError(
        f"the source of {kind.__qualname__} cannot be found: define it at the top of a file and "
        "give the task as FILE.py:CLASS"
    )


def _cells() -> Iterator[str]:
    """The cells of the notebook that this process is, in order."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    for cell in [] if shell is None else shell.history_manager.input_hist_parsed:
        try:
            ast.parse(cell)
        except SyntaxError:
            continue
        yield cell


def _weights(module: nn.Module) -> dict[str, Any]:
    return {name: value.shape for name, value in module.state_dict().items()}


def _call(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())

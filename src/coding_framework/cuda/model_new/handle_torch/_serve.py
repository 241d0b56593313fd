"""The main program of the sandboxed Python host: runs an answer for the judge.

    python -c "from handle_torch._serve import main; main(LIBRARY, FOLDER)"

FOLDER holds `answer.py` and, once compiled, `host.so` with `extensions.txt` (one digest of a
request a line). A third argument, "copies": serve as job_starter.h says, each time by a copy of
this process, which has imported what every answer needs. Untrusted from the moment the answer is
imported, and shut before that.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import types
from collections.abc import Iterator
from typing import Any, NoReturn

from . import _host, _imports, _triton
from ._deferred import State
from ._handle import resolved
from ._tensor import Tensor
from ._types import BY_CODE
from .nn._modules import USUAL, Module, defined, source
from .nn.parameter import Parameter
from .utils import cpp_extension

ANSWER = "answer.py"
_FIRST = (
    *("math", "random", "ctypes", "typing", "functools", "itertools", "struct", "hashlib"),
    *("time", "logging", "mmap", "zlib", "array", "cmath", "binascii", "select", "fcntl"),
    *("_bisect", "_heapq", "_json", "_csv", "_datetime", "_decimal", "_pickle", "_posixsubprocess"),
    *("_queue", "_opcode", "_socket", "_statistics", "unicodedata", "resource"),
)
"""Imported while files can still be opened: compiled modules, and what asks for the time."""


def main(library: str, folder: str, how: str = "once") -> NoReturn:
    """Serve until the judge goes away."""
    _host.load_library(library)
    for name in _FIRST:
        with contextlib.suppress(ImportError):
            __import__(name)
    if how == "copies":
        for file in USUAL:
            source(file)
        _host.serve_copies(lambda: _serve_as_copy(folder))
    _serve(folder)


def _serve_as_copy(folder: str) -> NoReturn:
    """With random numbers and addresses of small objects that are not those of other copies."""
    import random

    random.seed()
    kept: list[object] = [object() for _ in range(random.randrange(3000))]
    kept += (bytes(size) for size in range(1, 500, 16) for _ in range(random.randrange(300)))
    random.seed()
    _serve(folder)


def _serve(folder: str) -> NoReturn:
    with open(f"{folder}/{ANSWER}", encoding="utf-8", newline="") as file:
        source = file.read()
    digests = _listed_extensions(folder)
    sys.setrecursionlimit(2000)
    code = _compiled(source)
    _triton.built(_launches(folder))
    _imports.from_memory(ANSWER, source)
    status = _host.start(f"{folder}/host.so")
    if status != 0:
        os._exit(status)
    environment: Any = os.environ
    environment._data.clear()
    environment._data.update(_host.environment())
    _load_extensions(folder, digests)
    _imports.install()
    server = _Server(code)
    functions = ("import", 0), ("construct", 4), ("forward", 0)
    payload = struct.pack("<I", len(functions)) + b"".join(
        _host.packed_text(name) + struct.pack("<I", count) for name, count in functions
    )
    _host.post(_host.LOADED, payload)
    while True:
        server.answer(_host.receive())


def _listed_extensions(folder: str) -> list[str] | None:
    listed = f"{folder}/extensions.txt"
    if not os.path.exists(listed):
        return None
    with open(listed) as file:
        return file.read().split()


def _launches(folder: str) -> Any:
    """What the build has of Triton's kernels."""
    import json

    if not os.path.exists(f"{folder}/triton.json"):
        return {}
    with open(f"{folder}/triton.json") as file:
        return json.load(file)


def _load_extensions(folder: str, digests: list[str] | None) -> None:
    if not digests:
        return
    _host.load_module(f"{folder}/host.so")
    for i in range(len(digests)):
        if not _host.initialise(f"cf_module_init_{i}", f"{i}."):
            _host.finish(_host.LOAD_FAILED, "load_inline was given no functions to bind")
    cpp_extension.compiled(digests)


def _compiled(source: str) -> types.CodeType | str:
    """The answer's code, or why there is none: while files can be opened, as Python reads the line
    of an error anew."""
    try:
        return compile(source, ANSWER, "exec", dont_inherit=True)
    except BaseException as e:
        return _described(e)


def _import_answer(code: types.CodeType | str) -> type[Any]:
    """The answer's ModelNew. Ends the process where it cannot be imported."""
    if isinstance(code, str):
        _host.finish(_host.LOAD_FAILED, code)
    module = types.ModuleType("answer")
    module.__file__ = ANSWER
    module.__dict__["hash"] = _hash
    sys.modules["answer"] = module
    try:
        exec(code, module.__dict__)
        model = getattr(module, "ModelNew", None)
    except cpp_extension.NotCompiledYet:
        model = Module
    except BaseException as e:
        _host.finish(_host.LOAD_FAILED, _described(e))
    if not isinstance(model, type) or not issubclass(model, Module):
        _host.finish(_host.LOAD_FAILED, "the answer defines no class ModelNew(torch.nn.Module)")
    return model


def _hash(value: Any) -> int:
    """That of texts differs from one Python to the next."""
    if _holds_text(value):
        _host.ask("the hash of a text, which each Python draws anew")
    return hash(value)


def _holds_text(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return any(_holds_text(item) for item in value)
    return isinstance(value, (str, bytes))


def _described(error: BaseException) -> str:
    """An exception with the line of the answer that it came from."""
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == ANSWER:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = "" if line is None else f"line {line}: "
    try:
        return f"{where}{type(error).__name__}: {error}"
    except Exception:
        return f"{where}an exception without a message"


class _Server:
    """Imports the answer, at wish anew, builds its model, and calls it."""

    def __init__(self, code: types.CodeType | str) -> None:
        self._code = code
        self._class = _import_answer(code)
        self._model: Any = None
        self._scalars: list[tuple[int, Any]] = []
        self._kept: list[Any] = []  # outputs stay allocated: the judge reads them later

    def answer(self, message: bytes) -> None:
        """One call of the judge's."""
        reader = _Reader(message)
        name, arguments = reader.text(), reader.values()
        try:
            outputs: list[Tensor] = []
            if name == "import":
                State.constructing = True
                self._class, self._scalars = _import_answer(self._code), []
            elif name == "construct":
                self._construct(*arguments)
            else:
                outputs = list(_tensors(self._model(*self._with_scalars(arguments))))
            payload = struct.pack("<I", len(outputs)) + b"".join(map(_packed, outputs))
            payload += struct.pack("<QI", 0, _host.asked_device())
        except MemoryError:
            _raised(2, "out of memory")
        except BaseException as e:
            _raised(0, _described(e))
        else:
            self._kept.append(outputs)
            _host.post(_host.RESULT, payload)

    def _construct(
        self, init: list[Any], names: list[str], tensors: list[Tensor], positions: list[int]
    ) -> None:
        """ModelNew as KernelBench builds it, on the reference's parameters. positions: where among
        its inputs the problem passes the numbers at the end of `init`."""
        if positions and _takes(self._class.forward, positions[-1] + 1):
            self._scalars = list(zip(positions, init[-len(positions) :], strict=True))
            init = init[: -len(positions)]
        model = self._class(*init)
        _bind(model, dict(zip(names, tensors, strict=True)))
        self._model = model.cuda()
        State.constructing = False

    def _with_scalars(self, tensors: list[Any]) -> list[Any]:
        arguments = list(tensors)
        for position, value in self._scalars:
            arguments.insert(position, value)
        return arguments


def _takes(function: Any, at_least: int) -> bool:
    """Whether a method has so many parameters besides `self`."""
    code = getattr(function, "__code__", None)
    return code is None or bool(code.co_flags & 4) or code.co_argcount - 1 >= at_least


def _bind(model: Any, reference: dict[str, Tensor]) -> None:
    """Give the reference's parameters to the model: by name and shape; what is left over, by order
    among those of equal shape (both models draw them in this order from the same seed)."""
    free = dict(reference)
    waiting: list[Tensor] = []
    seen: set[int] = set()
    for name, tensor in defined(model):
        if id(tensor) in seen:
            free.pop(name, None)
            continue
        seen.add(id(tensor))
        theirs = reference.get(name)
        if theirs is not None and theirs.shape == tensor.shape:
            _become(tensor, theirs)
            free.pop(name, None)
        elif isinstance(tensor, Parameter):
            waiting.append(tensor)
    for tensor in waiting:
        free_name = next((n for n, t in free.items() if t.shape == tensor.shape), None)
        if free_name is not None:
            _become(tensor, free.pop(free_name))


def _become(tensor: Tensor, theirs: Tensor) -> None:
    deferred = tensor._deferred
    if deferred is not None and tensor.is_contiguous() and deferred.shape == tuple(tensor.shape):
        deferred.bind(theirs)
    tensor.set_(theirs)


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        for item in result:
            if item is not None:
                yield from _tensors(item)
    elif isinstance(result, Tensor):
        yield result
    else:
        raise TypeError(f"forward returned a {type(result).__name__}, not a Tensor")


def _packed(tensor: Tensor) -> bytes:
    meta = _host.metadata(resolved(tensor))
    dims = meta.dims
    head = struct.pack("<2IQI", meta.dtype, not meta.on_host, meta.data, dims)
    return head + struct.pack(f"<{2 * dims}q", *meta.sizes[:dims], *meta.strides[:dims])


def _raised(trouble: int, text: str) -> None:
    _host.post(_host.RAISED, struct.pack("<I", trouble) + _host.packed_text(text[:1000]))


class _Reader:
    """Reads the judge's messages."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return found

    def text(self) -> str:
        (size,) = self.numbers("I")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def values(self) -> list[Any]:
        return [self._value() for _ in range(self.numbers("I")[0])]

    def _value(self) -> Any:
        (kind,) = self.numbers("I")
        match kind:
            case _host.TENSOR:
                code, address, dims = self.numbers("IQI")
                sizes, strides = self.numbers(f"{dims}q"), self.numbers(f"{dims}q")
                return Tensor.at(
                    _host.adopt(address, BY_CODE[code].code, sizes, strides, exists=True)
                )
            case _host.INT:
                return self.numbers("q")[0]
            case _host.BOOL:
                return bool(self.numbers("q")[0])
            case _host.FLOAT:
                return self.numbers("d")[0]
            case _host.LIST:
                return self.values()
            case _host.STRING:
                return self.text()
        return None

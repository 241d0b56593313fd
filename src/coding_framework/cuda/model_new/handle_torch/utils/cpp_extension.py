"""torch.utils.cpp_extension: `load_inline`, compiled by the judge's compiler, with its flags.

The judge compiles before a kernel is run: the first time an answer asks for sources, it hears of
them; the next time the answer is run, they are there.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from .. import _host
from .._handle import result_of, value_of

CUDA_HOME = "/usr/local/cuda"
_known: dict[str, int] = {}


def compiled(digests: list[str]) -> None:
    """The requests that the judge has answered, in the order of its build."""
    _known.update((digest, i) for i, digest in enumerate(digests))


class NotCompiledYet(BaseException):
    """A function is called while the judge only wants to hear what there is to compile."""


class Extension:
    """A compiled module, by its functions."""

    def __init__(self, name: str, number: int | None) -> None:
        self.__name__ = name
        self._number = number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._number is not None and not _host.is_defined(f"{self._number}.{name}"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        function = _Function(name, self._number)
        self.__dict__[name] = function
        return function


class _Function:
    """One function of an extension."""

    def __init__(self, name: str, number: int | None) -> None:
        self.__name__ = name
        self._number = number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if named:
            _host.unsupported("a compiled function called with names of arguments")
        if self._number is None:
            raise NotCompiledYet(self.__name__)
        values = [value_of(a) for a in arguments]
        try:
            results = _host.invoke(f"{self._number}.{self.__name__}", values)
        except _host.Failure as e:
            if e.trouble == 2:
                raise MemoryError from None
            raise (TypeError if e.trouble == 1 else RuntimeError)(e.text) from None
        return result_of(results)

    def __getattr__(self, name: str) -> Any:
        if name == "default":  # as with torch.ops
            return self
        raise AttributeError(name)


def load_inline(
    name: str,
    cpp_sources: Any = None,
    cuda_sources: Any = None,
    functions: Any = None,
    extra_cflags: Any = None,
    extra_cuda_cflags: Any = None,
    *_: Any,
    **__: Any,
) -> Extension:
    """The module of these sources. Of the flags only -DNAME=VALUE and -UNAME are taken, in one or
    two words."""
    cpp, cuda = _texts(cpp_sources), _texts(cuda_sources)
    names = list(functions) if isinstance(functions, dict) else _texts(functions)
    words = iter(" ".join([*_texts(extra_cflags), *_texts(extra_cuda_cflags)]).split())
    defines = [
        word + next(words, "") if word in ("-D", "-U") else word
        for word in words
        if word[:2] in ("-D", "-U")
    ]
    request = _host.packed_text(str(name)) + b"".join(
        struct.pack("<I", len(texts)) + b"".join(map(_host.packed_text, texts))
        for texts in (cpp, cuda, names, defines)
    )
    number = _known.get(hashlib.sha256(request).hexdigest())
    if number is None:
        _host.request(_host.EXTENSION, request)
    return Extension(str(name), number)


def _texts(given: Any) -> list[str]:
    if given is None:
        return []
    texts = [given] if isinstance(given, str) else list(given)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"load_inline takes texts, not a {type(text).__name__}")
    return texts


def load(*_: Any, **__: Any) -> Any:
    """Reads files, and there are none."""
    _host.unsupported("torch.utils.cpp_extension.load (use load_inline)")


class BuildExtension:
    """For a setup.py, which nothing runs here: it may be named."""


CUDAExtension = CppExtension = include_paths = library_paths = BuildExtension


def is_ninja_available() -> bool:
    return True


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    _host.unsupported(f"torch.utils.cpp_extension.{name}")

"""What an answer's `import triton` finds: what host code does with kernels that Triton compiles.

A kernel is compiled for how it is called (types, constants, alignment), by the judge, in a process
of its own: the first such call asks for it, and the answer begins again where it is there, or goes
on without the launch where the judge only wants to hear of it. Of `triton.autotune` the first
configuration is taken; the judge tries others as texts of their own. Inside of kernels nothing is
run here.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import struct
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from . import _host
from ._create import empty
from ._handle import Handle, call
from ._types import BY_NAME, Device
from .utils import cpp_extension

VERSION = "3.6.0"
_POINTERS = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "bool": "i1",
    "int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip
_PACKED = {"i32": "i", "i64": "q", "u64": "Q", "fp32": "f", "u1": "B"}
_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
_NO_EFFECT = frozenset(["debug", "sanitize_overflow", "stream", "device", "warmup"])
_built: dict[str, dict[str, Any]] = {}


def built(kernels: Mapping[str, dict[str, Any]]) -> None:
    """What the judge has compiled, by the digest of its request."""
    _built.update(kernels)


class Name:
    """A name of Triton's language. Kernels use it where they are compiled; host code passes it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self._path}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        _host.unsupported(f"{self._path.replace('tl', 'triton.language', 1)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return self._path


class Constexpr:
    """`tl.constexpr`: an annotation, and a constant."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, Constexpr) else value

    def __index__(self) -> int:
        return int(self.value)

    __int__ = __index__

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"


class Config:
    """A configuration of `triton.autotune`."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        self.kwargs, self.pre_hook = kwargs, pre_hook
        self.num_warps, self.num_stages = num_warps, num_stages
        self.num_ctas, self.maxnreg = num_ctas, maxnreg

    def all_kwargs(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}


class Launcher:
    """What has `kernel[grid](...)`."""

    fn: Any

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **named: self.run(*arguments, grid=grid, **named)

    def __call__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")

    def run(self, *arguments: Any, grid: Any, **named: Any) -> None:
        raise NotImplementedError

    def warmup(self, *_: Any, **__: Any) -> None:
        _host.unsupported("triton.JITFunction.warmup")


class JITFunction(Launcher):
    """A kernel, or a function that kernels call."""

    def __init__(self, fn: Any, unspecialized: Any = (), unaligned: Any = ()) -> None:
        self.fn, self.__doc__ = fn, fn.__doc__
        self.__name__: str = fn.__name__
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self._constant = {
            name
            for name, parameter in self.signature.parameters.items()
            if parameter.annotation is Constexpr or "constexpr" in str(parameter.annotation)
        }
        names = dict(enumerate(self.arg_names))
        self._unspecialized = {names.get(x, x) for x in unspecialized or ()}
        self._unaligned = {names.get(x, x) for x in unaligned or ()} | self._unspecialized

    def run(self, *arguments: Any, grid: Any, **named: Any) -> None:
        """Launch it on the current stream."""
        options = {key: named.pop(key, default) for key, default in _OPTIONS.items()}
        named = {k: v for k, v in named.items() if k in self.arg_names or k not in _NO_EFFECT}
        for name in named.keys() - set(self.arg_names):
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        bound = self.signature.bind(*arguments, **named)
        bound.apply_defaults()
        given = bound.arguments
        sizes = grid(dict(given)) if callable(grid) else grid
        sizes = [int(n) for n in (sizes if isinstance(sizes, (tuple, list)) else (sizes,))]
        sizes += [1] * (3 - len(sizes))
        request, values = self._request(given, options)
        found = _built.get(hashlib.sha256(request).hexdigest())
        if found is None:
            if _host.request(_host.KERNEL, request):
                raise cpp_extension.NotCompiledYet(self.__name__)
        elif all(sizes):
            _launch(found, sizes, values)

    def _request(
        self, given: Mapping[str, Any], options: dict[str, Any]
    ) -> tuple[bytes, list[tuple[str, Any]]]:
        """What is to be compiled, and the arguments that are left to a launch."""
        signature, constants, aligned, values = {}, {}, [], []
        for place, (name, value) in enumerate(given.items()):
            kind = "constexpr" if name in self._constant else _type_of(value)
            if kind == "i32" and value == 1 and name not in self._unspecialized:
                kind = "constexpr"
            signature[name] = kind
            if kind == "constexpr":
                constants[name] = _written(value)
                continue
            at = value.data_ptr() if kind.startswith("*") else value
            if kind[0] in "*iu" and kind != "u1" and at % 16 == 0 and name not in self._unaligned:
                aligned.append(place)
            values.append((kind, at))
        wanted = {
            "kernel": self.__name__, "signature": signature, "constants": constants,
            "aligned": aligned, "options": options,
        }  # fmt: skip
        return json.dumps(wanted).encode(), values


def _type_of(value: Any) -> str:
    """Triton's type of an argument."""
    if isinstance(value, Handle):
        return f"*{_POINTERS[value.dtype.name]}"
    if value is None or isinstance(value, (Constexpr, Name, str, JITFunction)):
        return "constexpr"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return "i32"
        return "u64" if value >= 2**63 else "i64"
    if isinstance(value, float):
        return "fp32"
    _host.unsupported(f"triton.JITFunction.{type(value).__name__}")


def _written(value: Any) -> str:
    """A constant as the compiler's Python reads it."""
    if isinstance(value, Constexpr):
        return _written(value.value)
    if isinstance(value, JITFunction):
        return value.__name__
    if isinstance(value, tuple):
        return "(" + "".join(f"{_written(item)}, " for item in value) + ")"
    if value is None or isinstance(value, (bool, int, str, Name)):
        return repr(value)
    if isinstance(value, float):
        return f"float({str(value)!r})"
    raise TypeError(f"a {type(value).__name__} is no constant of a kernel")


def _launch(found: dict[str, Any], sizes: list[int], values: list[tuple[str, Any]]) -> None:
    scratch = found["scratch"] * sizes[0] * sizes[1] * sizes[2]
    kept = empty(scratch, dtype=BY_NAME["uint8"], device="cuda") if scratch else None
    values = [*values, ("*", 0 if kept is None else kept.data_ptr()), ("*", 0)]
    params = b""
    for kind, value in values:
        packed = struct.pack("<" + _PACKED.get(kind, "Q"), value)
        params += bytes(-len(params) % len(packed)) + packed
    stream = int(call("current_stream"))
    head = struct.pack("<6I2QI", *sizes, found["threads"], 1, 1, found["shared"], stream, 0)
    failed = _host.request(_host.LAUNCH, _host.packed_text(found["entry"]) + head + params)
    if failed:
        raise RuntimeError(f"Triton Error [CUDA]: error {failed}")


class _Around(Launcher):
    """A kernel with arguments that are found when it is launched."""

    def __init__(self, fn: Launcher) -> None:
        self.fn = fn
        self.arg_names, self.__name__ = fn.arg_names, fn.__name__  # type: ignore[attr-defined]

    def given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a launch by name."""
        return {**dict(zip(self.arg_names, arguments, strict=False)), **named}


class Autotuner(_Around):
    """`triton.autotune`: nothing is timed while host code is recorded."""

    def __init__(self, fn: Launcher, configs: list[Config]) -> None:
        super().__init__(fn)
        self.configs = configs or [Config({})]

    def run(self, *arguments: Any, grid: Any, **named: Any) -> None:
        config = self.configs[0]
        if config.pre_hook is not None:
            config.pre_hook({**self.given(arguments, named), **config.all_kwargs()})
        self.fn.run(*arguments, grid=grid, **{**named, **config.all_kwargs()})


class Heuristics(_Around):
    """`triton.heuristics`: constants that follow from the other arguments."""

    def __init__(self, fn: Launcher, values: Mapping[str, Callable[[Any], Any]]) -> None:
        super().__init__(fn)
        self.values = values

    def run(self, *arguments: Any, grid: Any, **named: Any) -> None:
        given = self.given(arguments, named)
        for name, value in self.values.items():
            named[name] = given[name] = value(given)
        self.fn.run(*arguments, grid=grid, **named)


def jit(fn: Any = None, **options: Any) -> Any:
    """`@triton.jit`, with or without options."""
    if fn is None:
        return lambda function: jit(function, **options)
    return JITFunction(
        fn, options.get("do_not_specialize"), options.get("do_not_specialize_on_alignment")
    )


def autotune(configs: list[Config], key: Any = None, **_: Any) -> Any:
    return lambda fn: Autotuner(fn, list(configs))


def heuristics(values: Mapping[str, Callable[[Any], Any]]) -> Any:
    return lambda fn: Heuristics(fn, values)


def cdiv(x: int, y: int) -> int:
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length() if n else 0


class _Language(types.ModuleType):
    """`triton.language`, and what lies below it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self.__name__.replace('triton.language', 'tl', 1)}.{name}")


def modules(gap: type[types.ModuleType]) -> dict[str, types.ModuleType]:
    """By name, for `sys.modules`. gap: of modules whose every use is a gap of ours."""
    triton = gap("triton")
    triton.__dict__.update(
        __version__=VERSION, __path__=[], jit=jit, autotune=autotune, heuristics=heuristics,
        Config=Config, cdiv=cdiv, next_power_of_2=next_power_of_2, JITFunction=JITFunction,
    )  # fmt: skip
    found: dict[str, types.ModuleType] = {"triton": triton}
    below = ("", ".extra", ".extra.libdevice", ".extra.cuda", ".extra.cuda.libdevice", ".math")
    for name in below:
        found[f"triton.language{name}"] = module = _Language(f"triton.language{name}")
        module.__dict__["__path__"] = []
    found["triton.language"].__dict__["constexpr"] = Constexpr
    runtime = gap("triton.runtime")
    active = gap("triton.runtime.driver.active")
    active.__dict__["get_active_torch_device"] = lambda: Device("cuda", 0)
    active.__dict__["get_current_device"] = lambda: 0
    driver = gap("triton.runtime.driver")
    driver.__dict__.update(active=active, __path__=[])
    runtime.__dict__.update(driver=driver, __path__=[], JITFunction=JITFunction)
    found |= {"triton.runtime": runtime, "triton.runtime.driver": driver}
    for name in found:
        parent, _, last = name.rpartition(".")
        if parent:
            found[parent].__dict__[last] = found[name]
    return found


def install(gap: type[types.ModuleType]) -> None:
    """From here on `import triton` is this."""
    sys.modules.update(modules(gap))

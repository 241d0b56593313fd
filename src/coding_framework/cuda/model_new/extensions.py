"""What an answer asks `load_inline` for, and the one CUDA source that all its requests become.

Everything in a request was written by the answer. It ends up in a source that the sandboxed
compiler reads, as the text of a `.cu` candidate does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coding_framework.cuda.build.diagnostics import MAX_SOURCE_CHARS, SOURCE_NAME
from coding_framework.cuda.host.wire import Malformed, Reader

MAX_REQUESTS = 32
"""Of one answer, when it is imported."""
MAX_LATE_REQUESTS = 6
"""Of one answer, while it runs: each starts it anew."""
_MAX_TEXTS = 64
_NAME = re.compile(r"[A-Za-z_]\w{0,200}")
_DEFINITION = re.compile(r"-([DU])([A-Za-z_]\w{0,200})(?:=([\w.+-]{0,200}))?")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ExtensionRequest:
    """One call of `load_inline`. Maker: the answer, by a message. Consumer: `cuda_source`."""

    name: str
    cpp_sources: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    functions: tuple[str, ...]
    """What to bind; () where the sources have a PYBIND11_MODULE of their own."""
    definitions: tuple[str, ...]
    digest: str
    """Of the message; the answer's process knows the request by it."""


def decode_request(payload: memoryview) -> ExtensionRequest:
    """Read a request. Raises Malformed."""
    reader = Reader(payload)
    name = reader.text(MAX_SOURCE_CHARS)
    lists = []
    for _ in range(4):
        (count,) = reader.numbers("I")
        if count > _MAX_TEXTS:
            raise Malformed(f"{count} texts in one request")
        lists.append(tuple(reader.text(4 * MAX_SOURCE_CHARS) for _ in range(count)))
    reader.end()
    cpp, cuda, functions, definitions = lists
    if not all(_NAME.fullmatch(function) for function in functions):
        raise Malformed("a function's name that is no name")
    return ExtensionRequest(
        name, cpp, cuda, functions, definitions, hashlib.sha256(payload).hexdigest()
    )


def cuda_source(
    requests: Sequence[ExtensionRequest], answer: str, only: Literal["cuda", "cpp"] | None = None
) -> str:
    """The source of all requests, or of their CUDA or C++ part alone: one translation unit, so that
    one compilation and one device module hold an answer. Several requests get a namespace each, for
    they may use a name twice; their includes go to the top. Lines are those of `answer` where a
    source stands in it as it is.
    """
    parts = [line for request in requests for line in _undefined(request)]
    parts += ["#include <torch/extension.h>"]
    bodies = [_body(request, answer, only) for request in requests]
    if len(bodies) > 1:
        includes = dict.fromkeys(line.strip() for b in bodies for line in _INCLUDE.findall(b))
        parts += includes
        bodies = [
            f"namespace cf_extension_{i} {{\n{_INCLUDE.sub('', body)}\n}}"
            for i, body in enumerate(bodies)
        ]
    for i, (request, body) in enumerate(zip(requests, bodies, strict=True)):
        parts += [f"#undef CF_MODULE_INIT\n#define CF_MODULE_INIT cf_module_init_{i}"]
        parts += _definitions(request)
        parts.append(body)
    return "\n".join(parts) + "\n"


def _body(request: ExtensionRequest, answer: str, only: str | None) -> str:
    parts = []
    texts = () if only == "cuda" else request.cpp_sources
    texts += () if only == "cpp" else request.cuda_sources
    for text in texts:
        parts += [_line_directive(text, answer), text]
    if request.functions and only != "cuda":
        parts += ['#line 1 "bindings"', "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
        parts += [f'  m.def("{name}", {name});' for name in dict.fromkeys(request.functions)]
        parts.append("}")
    return "\n".join(parts)


def _line_directive(text: str, answer: str) -> str:
    """Diagnostics name the answer's own lines."""
    at = answer.find(text) if text.strip() else -1
    line = answer.count("\n", 0, at) + 1 if at >= 0 else 1
    return f'#line {line} "{SOURCE_NAME}"'


def _definitions(request: ExtensionRequest) -> list[str]:
    """Of -DNAME=VALUE; what is written otherwise is left out."""
    found = filter(None, map(_DEFINITION.fullmatch, request.definitions))
    return [f"#define {m[2]} {'1' if m[3] is None else m[3]}" for m in found if m[1] == "D"]


def _undefined(request: ExtensionRequest) -> list[str]:
    """Of -UNAME, as `-U__CUDA_NO_HALF_OPERATORS__`: before any header is read."""
    found = filter(None, map(_DEFINITION.fullmatch, request.definitions))
    return [f"#undef {m[2]}" for m in found if m[1] == "U"]

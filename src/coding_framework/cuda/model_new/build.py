"""From an answer to a build: hear what it asks `load_inline` for, and compile that.

The answer is imported once in the sandbox, without a device. Its requests become one source for the
compiler that `.cu` candidates go through too; the result and the answer together are the build. A
request that comes later (`load_inline` inside `__init__` or `forward`) is added when it is met.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from coding_framework.cuda.build.cache import KernelCompilationCache
from coding_framework.cuda.host.program import ANSWER_NAME
from coding_framework.cuda.host.python_runtime import python_runtime
from coding_framework.cuda.host.session import HostSession
from coding_framework.cuda.host.wire import CudaCallError, Kind
from coding_framework.cuda.model_new.extensions import (
    MAX_REQUESTS,
    ExtensionRequest,
    cuda_source,
    decode_request,
)
from coding_framework.cuda.model_new.triton_kernels import (
    LAUNCHES_NAME,
    KernelRequest,
    decode_kernel,
    triton_fingerprint,
)
from coding_framework.cuda.plan.launch_plan import CandidateFault, ModuleInfo
from coding_framework.cuda.plan.stream_order import Ordering
from coding_framework.cuda.sandbox import Sandbox
from coding_framework.types import CompilationResult, Diagnostic, Status

Request = ExtensionRequest | KernelRequest
EXTENSIONS_NAME = "extensions.txt"
"""File of a build: one digest of a request a line, in the order of its modules."""
_TWICE = re.compile(r"already been (?:defined|declared)|redefin|redeclar")
_COMPILED = ("host.so", "device.ptx", "device.cubin", LAUNCHES_NAME)


class SourceCompiler(Protocol):
    """What the build of an answer takes of `CUDACompiler`."""

    cache: KernelCompilationCache
    sandbox: Sandbox

    def compile_cuda(self, code: str, host: str = "") -> CompilationResult:
        """The build of one CUDA source, and of C++ beside it."""
        ...

    def compile_triton(self, answer: str, requests: Sequence[KernelRequest]) -> CompilationResult:
        """The build of an answer's Triton kernels."""
        ...

    def address(self, code: str) -> str:
        """Content address of a text: of it and of everything else that its build depends on."""
        ...


class _NoDevice:
    """`RuntimeHandler` while an answer is imported: there is no device to ask anything of."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise CudaCallError

    malloc = free = upload = download = copy = fill = launch = synchronize = _refuse

    def order(self, what: Ordering, one: int, other: int) -> None:
        pass


def compile_answer(
    compiler: SourceCompiler, answer: str, later: Sequence[Request] = ()
) -> CompilationResult:
    """The build of an answer, from the compiler's cache where it is there. A fault of the answer is
    in the result, also one that shows when it is imported; ours is raised.

    later: requests that came up while it ran.
    """
    digest = _address(compiler, answer, later)
    if (hit := compiler.cache.get(digest)) is not None:
        return hit
    try:
        requests = requests_of(compiler, answer)
    except CandidateFault as fault:
        return _refused(fault)
    known = {request.digest: request for request in (*requests, *later)}
    result = _compiled(compiler, list(known.values()), answer)
    if not result.success or result.binary_path is None:
        return result
    with compiler.cache.scratch() as folder:
        (folder / ANSWER_NAME).write_bytes(answer.encode())
        listed = (r.digest for r in known.values() if isinstance(r, ExtensionRequest))
        (folder / EXTENSIONS_NAME).write_text("".join(f"{d}\n" for d in listed))
        built = Path(result.binary_path)
        files = {name: built / name for name in _COMPILED if (built / name).exists()}
        files |= {name: folder / name for name in (ANSWER_NAME, EXTENSIONS_NAME)}
        return compiler.cache.put(digest, result, files)


def _compiled(
    compiler: SourceCompiler, requests: Sequence[Request], answer: str
) -> CompilationResult:
    """The device code of an answer, which is CUDA's or Triton's."""
    kernels = [request for request in requests if isinstance(request, KernelRequest)]
    extensions = [request for request in requests if isinstance(request, ExtensionRequest)]
    if kernels and extensions:
        reason = "load_inline beside Triton kernels is not supported yet: write all kernels in one"
        return _refused(CandidateFault(Status.UNSUPPORTED, reason))
    if kernels:
        return compiler.compile_triton(answer, kernels)
    return _of_extensions(compiler, extensions, answer)


def _of_extensions(
    compiler: SourceCompiler, requests: Sequence[ExtensionRequest], answer: str
) -> CompilationResult:
    """Both kinds of sources in one go, which is quicker; apart, as torch compiles them, where they
    define the same names."""
    result = compiler.compile_cuda(cuda_source(requests, answer))
    twice = any(_TWICE.search(error.message) for error in result.errors)
    if not twice or not any(r.cpp_sources and r.cuda_sources for r in requests):
        return result
    device, host = (cuda_source(requests, answer, only=part) for part in ("cuda", "cpp"))
    apart = compiler.compile_cuda(device, host)
    return apart if apart.success else result


def answer_of(build: Path) -> str:
    """The answer that a build was made from."""
    return (build / ANSWER_NAME).read_bytes().decode()


class ExtensionWanted(Exception):  # noqa: N818 - a wish of theirs, not an error of ours
    """An answer asked, while it ran, for an extension or a kernel that is not in its build."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.digest)
        self.request = request


def want_extension(kind: Kind, payload: memoryview) -> None:
    """`on_extension` of a host process that runs a build. Raises ExtensionWanted."""
    raise ExtensionWanted(decoded(kind, payload))


def decoded(kind: Kind, payload: memoryview) -> Request:
    """What an answer asks for, by its message."""
    return decode_kernel(payload) if kind is Kind.KERNEL else decode_request(payload)


def requests_of(compiler: SourceCompiler, answer: str) -> tuple[Request, ...]:
    """What the answer asks for when it is imported. Raises CandidateFault (load_error, rejected,
    unsupported, timeout, ...) where it cannot be."""
    requests: list[Request] = []

    def note(kind: Kind, payload: memoryview) -> None:
        requests.append(decoded(kind, payload))
        if len(requests) > MAX_REQUESTS:
            raise CandidateFault(
                Status.OUTPUT_LIMIT, f"more than {MAX_REQUESTS} calls of load_inline"
            )

    module, device, sandbox = ModuleInfo({}, {}), _NoDevice(), compiler.sandbox
    with compiler.cache.scratch() as build:
        build.chmod(0o755)
        (build / ANSWER_NAME).write_bytes(answer.encode())
        with HostSession(build, module, device, sandbox, on_extension=note):
            pass
    return tuple({request.digest: request for request in requests}.values())


def _address(compiler: SourceCompiler, answer: str, later: Sequence[Request]) -> str:
    asked = (request.digest for request in later)
    parts = (compiler.address(answer), python_runtime().name, triton_fingerprint(), *asked)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _refused(fault: CandidateFault) -> CompilationResult:
    return CompilationResult(
        success=False,
        status=fault.status,
        reason=fault.reason,
        errors=(Diagnostic(severity="error", line=None, message=fault.reason),),
    )

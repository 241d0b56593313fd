"""Builds that were made on another machine: what travels, and when it is believed.

Guaranteed: a build is taken only when its bytes are those that were sent (SHA-256 over all of it),
and when it was made for exactly its source with the flags, the nvcc, the host compiler, the
headers, the sandbox and the architecture that this machine would use itself.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coding_framework.cuda.build.cache import RESULT_NAME
from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.host.program import ANSWER_NAME
from coding_framework.cuda.model_new.build import EXTENSIONS_NAME
from coding_framework.cuda.model_new.extensions import ExtensionRequest
from coding_framework.cuda.protocol import judge_digest
from coding_framework.cuda.sandbox import Sandbox
from coding_framework.cuda.toolchain.toolkit import Toolkit
from coding_framework.errors import InfrastructureError
from coding_framework.types import CompilationResult

_FILES = frozenset({"host.so", "device.ptx", "device.cubin", ANSWER_NAME, EXTENSIONS_NAME})


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What is to be compiled. Maker: `RemoteBuildJudge`. Consumer: `RemoteCompiler`."""

    code: str
    later: tuple[ExtensionRequest, ...] = ()
    """What an answer asked `load_inline` for while it ran."""

    @property
    def digest(self) -> str:
        return _sha256(_json(asdict(self)))

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> BuildRequest:
        """From what `asdict` gives, also after JSON made lists of its tuples."""
        later = []
        for request in data["later"]:
            fields: dict[str, Any] = dict(request)
            lists = {name: tuple(v) for name, v in fields.items() if isinstance(v, list)}
            later.append(ExtensionRequest(**{**fields, **lists}))
        return cls(data["code"], tuple(later))


@dataclass(frozen=True, slots=True)
class Build:
    """One compilation with its files. Maker: `pack`. Consumer: `unpack`."""

    request: BuildRequest
    conditions: dict[str, str]
    key: str
    """`build_key`, as its maker has it."""
    result: CompilationResult
    files: dict[str, bytes]
    digest: str
    """Of all the above."""


class DamagedBuildError(Exception):
    """A build is not what was sent."""


class BuildWantedError(Exception):
    """A judge that does not compile lacks a build. Its pool answers with the request."""

    def __init__(self, request: BuildRequest) -> None:
        super().__init__(request.digest)
        self.request = request


class RemoteBuilds:
    """`judge.BuildSource` of a judge whose builds are made elsewhere: it has those of the job."""

    def __init__(self, compiler: CUDACompiler) -> None:
        """compiler: says what this machine would compile with; it is not used to compile."""
        self.toolkit: Toolkit = compiler.toolkit
        self.sandbox: Sandbox = compiler.sandbox
        self.architecture = compiler.architecture
        self._builds: dict[str, CompilationResult] = {}

    def deliver(self, builds: Mapping[str, CompilationResult]) -> None:
        """The builds of the next job, by the digests of their requests; those of the last go."""
        self._builds = dict(builds)

    def compile_source(
        self, code: str, later: Sequence[ExtensionRequest] = ()
    ) -> CompilationResult:
        """The build as it was delivered. Raises BuildWantedError where it was not."""
        request = BuildRequest(code, tuple(later))
        found = self._builds.get(request.digest)
        if found is None:
            raise BuildWantedError(request)
        return found

    def compile_ahead(self, code: str) -> None:
        """Raises BuildWantedError now, and not when half of the work is done."""
        self.compile_source(code)


def conditions_of(compiler: CUDACompiler) -> dict[str, str]:
    """What builds of this machine depend on beside source and flags."""
    python, package = platform.python_version(), judge_digest()
    return {**compiler.conditions(), "python": python, "this package": package}


def pack(compiler: CUDACompiler, conditions: Mapping[str, str], request: BuildRequest) -> Build:
    """Compile what is asked for, also where it fails. conditions: of the compiler."""
    result = compiler.compile_source(request.code, request.later)
    files = {}
    if result.binary_path is not None:
        paths = [Path(result.binary_path) / name for name in sorted(_FILES)]
        files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    key = build_key(compiler, conditions, request)
    digest = _digest(request, conditions, key, result, files)
    return Build(request, dict(conditions), key, result, files, digest)


def unpack(
    build: Build, folder: Path, compiler: CUDACompiler, conditions: Mapping[str, str]
) -> CompilationResult:
    """Write a build's files into a folder; gives its result, which names that. compiler,
    conditions: this machine's. Raises DamagedBuildError for other bytes than were sent, and
    InfrastructureError for a build that was made under other conditions."""
    sent = (build.request, build.conditions, build.key, build.result, build.files)
    if build.digest != _digest(*sent) or not build.files.keys() <= _FILES:
        raise DamagedBuildError(build.key)
    require_same(build.conditions, conditions)
    if build.key != build_key(compiler, conditions, build.request):
        raise InfrastructureError(
            "a build was made with other flags than this machine's: install the same version of "
            "this package on all nodes"
        )
    files = {**build.files, RESULT_NAME: build.result.model_dump_json().encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o444)
    folder.chmod(0o755)  # the sandbox reads it
    if not build.result.success:
        return build.result
    return build.result.model_copy(update={"binary_path": str(folder)})


def build_key(compiler: CUDACompiler, conditions: Mapping[str, str], request: BuildRequest) -> str:
    """What a build is for: the request, the conditions, and the flags of this machine's package."""
    return _sha256(_json([dict(conditions), compiler.flags(request.code), asdict(request)]))


def require_same(theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Raises InfrastructureError where two machines' builds would not be the same."""
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            raise InfrastructureError(
                f"machines that compile and machines that judge differ in: {name} "
                f"({theirs.get(name)!r} and {ours.get(name)!r}): install the same on all nodes, or "
                "choose a sandbox that all have with --sandbox"
            )


def _digest(
    request: BuildRequest,
    conditions: Mapping[str, str],
    key: str,
    result: CompilationResult,
    files: Mapping[str, bytes],
) -> str:
    contents = {name: _sha256(content) for name, content in files.items()}
    parts = [asdict(request), dict(conditions), key, result.model_dump(mode="json"), contents]
    return _sha256(_json(parts))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()  # ASCII: lone surrogates are escaped


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

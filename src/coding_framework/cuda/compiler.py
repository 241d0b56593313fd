"""CUDACompiler: a candidate's source to host code, PTX, cubin and diagnostics, in a sandbox.

One nvcc run with flags of ours makes everything from one translation unit: `host.so` (for the
sandboxed host process), `device.ptx` (for the emulator) and `device.cubin` (for a GPU). The device
code is taken from the compiler's own output, never from what the host process registers.

Guaranteed: the compiler reads nothing but the toolkit, the system's headers and ours (in
bubblewrap); its time limit is CPU time, so load on the machine cannot fail a candidate; queueing is
not counted. A result is cached under everything that it depends on, and only where it would come
again: what may be this machine's doing is tried again and never kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from coding_framework.cuda.build.cache import KernelCompilationCache
from coding_framework.cuda.build.compile_failure import Failure, explain_failure, killed_for_memory
from coding_framework.cuda.build.cubin import registers_in
from coding_framework.cuda.build.diagnostics import (
    SOURCE_NAME,
    CompilerReport,
    parse_report,
    too_long,
)
from coding_framework.cuda.build.headers import Headers, small_headers, torch_headers
from coding_framework.cuda.build.ptx_summary import first_kernel, ptx_digest, techniques
from coding_framework.cuda.build.source_features import (
    feature_macros,
    uses_device_lambda,
    uses_torch,
)
from coding_framework.cuda.model_new.build import Request, compile_answer
from coding_framework.cuda.model_new.triton_kernels import (
    LAUNCHES_NAME,
    PROGRAM,
    KernelRequest,
    triton_command,
    triton_fingerprint,
    triton_gap,
)
from coding_framework.cuda.model_new.triton_program import CHECKED, MADE, PTX, for_emulator
from coding_framework.cuda.sandbox import Exit, Job, Limits, Mount, Sandbox, choose_sandbox
from coding_framework.cuda.sandbox.base import limited
from coding_framework.cuda.toolchain.architecture import detect_architecture
from coding_framework.cuda.toolchain.slots import available_cores, slot
from coding_framework.cuda.toolchain.toolkit import (
    Toolkit,
    find_host_compiler,
    find_toolkit,
    host_compiler_fingerprint,
)
from coding_framework.errors import CompilerKilledError, InfrastructureError, SandboxError
from coding_framework.paths import cache_dir
from coding_framework.store.events import log
from coding_framework.types import (
    Candidate,
    CompilationResult,
    Diagnostic,
    HeadersName,
    KernelResources,
    Status,
    source_bytes,
)

__all__ = ["CUDACompiler", "CompilerConfig", "KernelCompilationCache"]


MAX_LOG_BYTES = 1 << 20
MAX_PTX_BYTES = 8 << 20
"""A device has to read it all; the largest honest kernel seen has 0.3 MB."""
MIN_FREE_BYTES = 64 << 20
"""What a compilation may need of the disk: a usual one writes 2 to 10 MiB."""

_FLAGS = (
    "-std=c++17",
    "--expt-relaxed-constexpr",
    "-lineinfo",
    "-Xptxas=-v",
    "-cudart=none",
    "-shared",
    "-Xlinker=-Bsymbolic",  # what the candidate defines it calls, also by a name of the runtime
    # one registry a module: GNU-unique statics would merge across them
    "-Xcompiler=-fPIC,-fno-gnu-unique,-O1,-w,-fmax-errors=20",
    "-Xcudafe=--error_limit=20",
    "--keep",
    "--keep-dir=.",
)
_TORCH_FLAGS = (  # what torch.utils.cpp_extension compiles with
    "-DTORCH_EXTENSION_NAME=kernel",
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
# The first command shows that the sandbox came up: a failure before it is ours. The last leaves the
# CPU time of the compiler's processes: what a parent outside a PID namespace is told leaves it out.
_SCRIPT = ': > started && "$@"; code=$?; times > usage; exit $code'
_TUNABLES = (
    "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432:"
    "glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824"
)
"""The compiler's memory in huge pages and never given back: it takes 50,000 small ones otherwise,
each by a fault that costs most in a virtual machine. Unknown ones are ignored."""
_HOST_NAME = "host_part.cpp"
_REQUESTS_NAME = "wanted.json"
_MADE_KEPT = 16
"""Answers whose Triton kernels are at hand when they call for one more."""
_TRIES = 2
"""For a failure that may be this machine's doing."""


class _Source(NamedTuple):
    """One CUDA source, and C++ beside it; or an answer and how its Triton kernels are called."""

    cuda: str
    host: str = ""
    kernels: str = ""
    """JSON: the compute capability to compile for, and the requests."""


@dataclass(frozen=True, slots=True)
class CompilerConfig:
    """How candidates are compiled. All of it is part of a build's content address."""

    architecture: int | None = None
    """Compute capability times ten: 80, 90, 100. None: that of the GPU here, else 90."""
    for_gpu: bool = False
    """Whether Triton may use what a Hopper GPU has and the emulator has not, as `wgmma`."""
    cpu_limit_s: int = 30
    """CPU seconds of each compiler process."""
    memory_bytes: int = 8 << 30
    sandbox: str = "auto"
    headers: HeadersName = "small"
    """"torch" compiles against the real ones, for comparison: 45 s and 3 GB a kernel, and a host
    part that only a process with the whole of torch could load."""


class CUDACompiler:
    """Compiles candidates' sources; results are cached. Safe to share between threads."""

    def __init__(
        self,
        config: CompilerConfig | None = None,
        *,
        cache: KernelCompilationCache | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.config = config or CompilerConfig()
        self.toolkit: Toolkit = find_toolkit()
        find_host_compiler()
        self.sandbox = sandbox or choose_sandbox(self.config.sandbox)
        self.cache = cache or KernelCompilationCache()
        self.architecture = self.config.architecture or detect_architecture(self.toolkit)
        self._limits = Limits(
            cpu_s=self.config.cpu_limit_s,
            memory_bytes=self.config.memory_bytes,
            wall_s=max(600.0, self.config.cpu_limit_s * 20.0),
        )
        self._made: dict[bytes, bytes] = {}
        self._threads = ThreadPoolExecutor(available_cores(), thread_name_prefix="compile")

    async def compile_kernel(self, code: str) -> CompilationResult:
        """Compile one source. A fault of the source is in the result; ours is raised:
        InfrastructureError, retryable."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.compile_source, code)

    def compile_source(self, code: str, later: Sequence[Request] = ()) -> CompilationResult:
        """As `compile_kernel`, blocking. later: what an answer asked for while it ran."""
        if (refused := _refuse(code)) is not None:
            return refused
        if Candidate(code=code).is_python:
            return compile_answer(self, code, later)
        return self.compile_cuda(code)

    def compile_ahead(self, code: str) -> None:
        """Compile what will soon be asked for, meanwhile."""
        threading.Thread(target=self._quietly, args=(code,), daemon=True).start()

    def _quietly(self, code: str) -> None:
        with suppress(Exception):  # a failure shows again when the build is asked for
            self.compile_source(code)

    def compile_cuda(self, code: str, host: str = "") -> CompilationResult:
        """As `compile_source`, for what is CUDA source whatever it looks like. host: C++ that is
        compiled apart and linked to it."""
        if (refused := _refuse(code)) is not None:
            return refused
        return self._compile(_Source(code, host), self.flags(code + host))

    def compile_triton(self, answer: str, requests: Sequence[KernelRequest]) -> CompilationResult:
        """The build of an answer's Triton kernels, with host code that does nothing."""
        if gap := triton_gap():
            return CompilationResult(success=False, status=Status.UNSUPPORTED, reason=gap)
        capability = 90 if self.config.for_gpu and self.architecture == 90 else 80
        texts = [request.text for request in requests]
        wanted = json.dumps({"capability": capability, "requests": texts})
        return self._compile(_Source(answer, kernels=wanted), (triton_fingerprint(),))

    def _compile(self, source: _Source, flags: tuple[str, ...]) -> CompilationResult:
        digest = self._digest("\0".join(filter(None, source)), flags)
        if (hit := self.cache.get(digest)) is not None:
            return hit
        with self.cache.building(digest):
            if (hit := self.cache.get(digest)) is not None:
                return hit
            with slot(cache_dir() / "slots", available_cores()):
                return self._build(source, flags, digest)

    def address(self, code: str) -> str:
        """Content address of a text: of it and of everything else that its build depends on."""
        return self._digest(code, self.flags(code))

    def flags(self, source: str) -> tuple[str, ...]:
        """What nvcc is given for a source."""
        arch = self.architecture
        flags = [*_FLAGS, f"-gencode=arch=compute_{arch},code=[compute_{arch},sm_{arch}]"]
        if uses_device_lambda(source):
            flags.append("--expt-extended-lambda")
        if uses_torch(source):
            flags += _TORCH_FLAGS
            if self.config.headers == "small":
                flags += (f"-D{macro}" for macro in feature_macros(source))
        return tuple(flags)

    def _digest(self, source: str, flags: tuple[str, ...]) -> str:
        """The content address: everything that a result depends on."""
        key = hashlib.sha256()
        environment = (
            self.toolkit.fingerprint,
            host_compiler_fingerprint(),
            self._headers.digest,
            self.sandbox.name,  # which files a source can include
            self.sandbox.system,
            *limited(self._limits, ()),  # as they are in force here
        )
        for part in (*environment, *flags, source):
            key.update(source_bytes(part) + b"\0")
        return key.hexdigest()

    def conditions(self) -> dict[str, str]:
        """Everything that a build depends on beside the source, its flags and the limits, said so
        that machines can compare it."""
        return {
            "architecture": f"sm_{self.architecture}",
            "nvcc": f"{self.toolkit.version} {self.toolkit.contents[:16]}",
            "host compiler": host_compiler_fingerprint(),
            "headers": self._headers.digest,
            "sandbox": f"{self.sandbox.name} {self.sandbox.system}".strip(),
        }

    @cached_property
    def _headers(self) -> Headers:
        if self.config.headers == "torch":
            return torch_headers()
        return small_headers(self.cache.folder / "headers")

    def _build(self, source: _Source, flags: tuple[str, ...], digest: str) -> CompilationResult:
        """Compile, and keep what is certain: a failure that may be ours is tried again."""
        for tries_left in reversed(range(_TRIES)):
            with self.cache.scratch() as folder:
                try:
                    result, certain = self._build_in(folder, source, flags, digest)
                except CompilerKilledError as e:
                    if not tries_left:
                        raise
                    log.warning("compilation_tried_again", reason=str(e), digest=digest[:16])
                    continue
                if result.success:
                    files = {
                        "host.so": folder / "host.so",
                        "device.ptx": folder / "kernel.ptx",
                        "device.cubin": folder / f"kernel.sm_{self.architecture}.cubin",
                    }
                    if source.kernels:
                        files[LAUNCHES_NAME] = folder / LAUNCHES_NAME
                    return self.cache.put(digest, result, files)
                if result.status in (Status.COMPILE_ERROR, Status.UNSUPPORTED):
                    if _may_be_the_machine(result):
                        self._require_working()
                    if certain:
                        self.cache.put(digest, result, {})
                if certain or not tries_left:
                    break
                log.warning("compilation_tried_again", reason=result.reason, digest=digest[:16])
        return result

    def _require_working(self) -> None:
        """Raises InfrastructureError where a source without a fault does not compile either: what
        the linker or no tool at all says of a candidate is then this machine's fault."""
        with self.cache.scratch() as folder:
            found, _ = self._build_in(folder, _Source(_FAULTLESS), self.flags(_FAULTLESS), "")
        if not found.success:
            raise InfrastructureError(
                f"nothing compiles on this machine ({found.reason}): see that the host compiler "
                "links a program (`cuda-rl doctor`)"
            )

    def _build_in(
        self, folder: Path, source: _Source, flags: tuple[str, ...], digest: str
    ) -> tuple[CompilationResult, bool]:
        """One run of the compiler: its result, and whether that would come again."""
        _require_room(folder)
        killed = killed_for_memory()
        own: tuple[str, ...] = ()
        if source.kernels:
            try:
                exit_, text = self._run_triton(folder, source)
            except SandboxError:
                self._require_working()  # then the answer's own code took away the mark of a start
                exit_, text = Exit(code=1, cpu_s=0.0), ""
        else:
            for name, code in ((SOURCE_NAME, source.cuda), (_HOST_NAME, source.host)):
                if code:
                    (folder / name).write_bytes(source_bytes(code))
            job, own = self._nvcc(folder, flags)
            exit_, text = self._run(folder, job)
        if exit_.code != 0:
            _require_room(folder)  # it may have failed of a disk that filled up meanwhile
        report = parse_report(text, own)
        failure = explain_failure(
            exit_, text, report, self._limits, killed_for_memory() - killed,
            "Triton" if source.kernels else "nvcc",
        )  # fmt: skip
        if failure is None and source.kernels and not _complete(folder):
            failure = Failure(Status.COMPILE_ERROR, "Triton's compiler ended without a kernel")
        if failure is not None:
            return self._failed(failure, exit_, report, digest), failure.certain
        return self._succeeded(exit_, report, folder, digest), True

    def _run_triton(self, folder: Path, source: _Source) -> tuple[Exit, str]:
        """Triton, in whose process the answer's code takes part, in a folder of its own; then
        ptxas, on the text that the emulator reads too, but for what only the GPU here runs."""
        empty = self.compile_cuda(_EMPTY)
        if empty.binary_path is None:
            raise InfrastructureError(f"an empty host part does not compile: {empty.reason}")
        theirs = folder / "triton"
        theirs.mkdir()
        shutil.copyfile(PROGRAM, theirs / PROGRAM.name)
        answer = hashlib.sha256(source_bytes(source.cuda)).digest()
        made = self._made.pop(answer, b"{}")
        wanted = source.kernels.removesuffix("}").encode() + b', "made": ' + made + b"}"
        (theirs / SOURCE_NAME).write_bytes(source_bytes(source.cuda))
        (theirs / _REQUESTS_NAME).write_bytes(wanted)
        path = self.sandbox.path
        command, mounts, environment = triton_command(path)
        ended, said = self._run(theirs, self._job(theirs, command, mounts, environment))
        if ended.code != 0 or not all(map(_is_plain, (theirs / PTX, theirs / LAUNCHES_NAME))):
            return ended, said
        if _is_plain(theirs / MADE) and (theirs / MADE).stat().st_size <= MAX_PTX_BYTES:
            self._made[answer] = (theirs / MADE).read_bytes()
        while len(self._made) > _MADE_KEPT:
            self._made.pop(next(iter(self._made)), None)
        shutil.copyfile(Path(empty.binary_path) / "host.so", folder / "host.so")
        shutil.copyfile(theirs / LAUNCHES_NAME, folder / LAUNCHES_NAME)
        shutil.copyfile(theirs / PTX, folder / "plain.ptx")
        plain = checked = (theirs / PTX).read_bytes().decode("utf-8", "replace")
        toolkit, arch = Mount(self.toolkit.root, "/opt/cuda"), f"sm_{self.architecture}"
        own = "a" if f".target {arch}a\n" in plain else ""
        if own and self.config.for_gpu and _is_plain(theirs / CHECKED):  # ptxas's text runs there
            checked = (theirs / CHECKED).read_bytes().decode("utf-8", "replace")
        (folder / PTX).write_bytes(for_emulator(checked).encode())
        command = [f"{path(toolkit)}/bin/ptxas", "-v", f"-arch={arch}{own}", "-lineinfo"]
        command += ["plain.ptx", "-o", f"kernel.{arch}.cubin"]
        exit_, text = self._run(folder, self._job(folder, command, (toolkit,), {}))
        exit_.cpu_s += ended.cpu_s
        return exit_, text

    def _nvcc(self, folder: Path, flags: tuple[str, ...]) -> tuple[Job, tuple[str, ...]]:
        """nvcc in the sandbox, and where trusted headers lie."""
        toolkit, path = Mount(self.toolkit.root, "/opt/cuda"), self.sandbox.path
        headers = self._headers.folders
        own = (path(toolkit), *map(path, headers), "/usr/include", "/usr/lib")
        command = [f"{path(toolkit)}/bin/nvcc", *flags, *(f"-I{path(h)}" for h in headers)]
        command += [SOURCE_NAME, *([_HOST_NAME] if (folder / _HOST_NAME).exists() else [])]
        command += ["-o", "host.so"]
        environment = {"GLIBC_TUNABLES": _TUNABLES}
        return self._job(folder, command, (toolkit, *headers), environment), own

    def _job(
        self,
        folder: Path,
        command: Sequence[str],
        mounts: tuple[Mount, ...],
        environment: Mapping[str, str],
    ) -> Job:
        work = Mount(folder, "/work", writable=True)
        return Job(
            command=["/bin/sh", "-c", _SCRIPT, "compile", *command],
            mounts=mounts,
            limits=self._limits,
            folder=work,
            environment={
                "PATH": "/usr/bin:/bin",
                "TMPDIR": self.sandbox.path(work),
                "LC_ALL": "C.UTF-8",
                **environment,
            },
        )

    def _run(self, folder: Path, job: Job) -> tuple[Exit, str]:
        """How a compiler ended, and what it said."""
        with tempfile.TemporaryFile(dir=folder) as output:
            running = self.sandbox.start(job, stdin=subprocess.DEVNULL, output=output)
            exit_ = running.wait(job.limits.wall_s)
            exit_.cpu_s = _cpu_seconds(folder / "usage") or exit_.cpu_s
            output.seek(0)
            text = output.read(MAX_LOG_BYTES).decode("utf-8", "replace")
        if not (folder / "started").exists():
            raise SandboxError(
                f"the {self.sandbox.name} sandbox did not start ({text.strip()[:300]}): choose "
                "another one with --sandbox"
            )
        if exit_.timed_out:
            raise InfrastructureError(
                f"a compilation did not end within {job.limits.wall_s:.0f} s although it used only "
                f"{exit_.cpu_s:.0f} s of CPU time: the machine is overloaded, try again"
            )
        return exit_, text

    def _succeeded(
        self, exit_: Exit, report: CompilerReport, folder: Path, digest: str
    ) -> CompilationResult:
        ptx, cubin = folder / "kernel.ptx", folder / f"kernel.sm_{self.architecture}.cubin"
        if not (ptx.is_file() and cubin.is_file() and (folder / "host.so").is_file()):
            raise InfrastructureError(
                "nvcc reported success without an output: try again, or reinstall the toolkit"
            )
        size_mib = ptx.stat().st_size >> 20
        if ptx.stat().st_size > MAX_PTX_BYTES:
            reason = f"the device code has {size_mib} MiB of PTX, more than the "
            reason += f"{MAX_PTX_BYTES >> 20} allowed"
            return self._failed(Failure(Status.OUTPUT_LIMIT, reason), exit_, report, digest)
        kernels = _with_registers(report.kernels, registers_in(cubin.read_bytes()))
        device_code = ptx.read_bytes().decode("utf-8", "replace")
        return CompilationResult(
            success=True,
            binary_path=str(folder),
            kernel_name=first_kernel(device_code),
            kernels=kernels,
            registers=max((k.registers for k in kernels), default=0),
            spill_bytes=max((k.spill_bytes for k in kernels), default=0),
            shared_bytes=max((k.shared_bytes for k in kernels), default=0),
            warnings=report.warnings,
            latency_s=exit_.cpu_s,
            digest=digest,
            ptx_sha256=ptx_digest(device_code),
            techniques=techniques(device_code),
        )

    def _failed(
        self, failure: Failure, exit_: Exit, report: CompilerReport, digest: str
    ) -> CompilationResult:
        return CompilationResult(
            success=False,
            status=failure.status,
            reason=failure.reason,
            kernels=report.kernels,
            errors=report.errors,
            warnings=report.warnings,
            latency_s=exit_.cpu_s,
            digest=digest,
        )


def _complete(folder: Path) -> bool:
    """Whether a process that an answer takes part in wrote all that it should."""
    return all((folder / name).is_file() for name in (PTX, LAUNCHES_NAME))


def _is_plain(path: Path) -> bool:
    """Whether it is a file, and no link to one of the judge's."""
    return path.is_file() and not path.is_symlink()


_EMPTY = "#include <torch/extension.h>\n"
_FAULTLESS = "__global__ void kernel(float* x) { x[threadIdx.x] = 1.0f; }\n"


def _may_be_the_machine(result: CompilationResult) -> bool:
    """Whether the failure is one that few sources cause: it is the linker's, or no tool gives a
    reason."""
    return not result.errors or result.errors[0].message.startswith("linker:")


def _with_registers(
    printed: tuple[KernelResources, ...], counted: dict[str, int]
) -> tuple[KernelResources, ...]:
    """The kernels of the cubin with their registers there, and the rest as ptxas printed it."""
    said = {kernel.name: kernel for kernel in printed}
    return tuple(
        said.get(name, KernelResources(name=name)).model_copy(update={"registers": registers})
        for name, registers in counted.items()
    )


def _require_room(folder: Path) -> None:
    """A full disk fails any source, and without a word: it must not become a verdict."""
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise InfrastructureError(
            f"only {free >> 20} MiB are free for compilations in {folder.parent}: free at least "
            f"{MIN_FREE_BYTES >> 20} MiB, or set CUDA_RL_CACHE to a folder with room"
        )


def _cpu_seconds(usage: Path) -> float:
    """What the shell's `times` wrote: its own time, then its children's, as 0m0.120s 0m0.030s."""
    if not _is_plain(usage):
        return 0.0
    try:
        found = re.findall(r"(\d+)m([\d.]+)s", usage.read_text())
        return sum(int(minutes) * 60 + float(seconds) for minutes, seconds in found)
    except (OSError, ValueError):
        return 0.0


def _refuse(code: str) -> CompilationResult | None:
    """What no compiler needs to see."""
    reason = too_long(code)
    if reason is not None:
        pass
    elif "\0" in code:
        reason = "the source contains NUL bytes"
    elif not code.strip():
        reason = "the source is empty"
    else:
        try:
            code.encode("utf-8", "strict" if Candidate(code=code).is_python else "surrogateescape")
        except UnicodeEncodeError:
            reason = "the source is not valid Unicode text: save it as UTF-8"
    if reason is None:
        return None
    return CompilationResult(
        success=False,
        status=Status.COMPILE_ERROR,
        reason=reason,
        errors=(Diagnostic(severity="error", line=None, message=reason),),
    )

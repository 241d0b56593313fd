"""HostSession: one candidate's host code in a sandboxed process, served by the judge.

The process loads the candidate's `host.so`; each CUDA runtime call that touches the device arrives
here as a message and goes to the handler. Nothing that the process sends is trusted: a message that
does not fit, a death, a silence or a flood is a CandidateFault of the right status. Faults that are
not the candidate's (the sandbox did not start, the process was killed from outside) are raised as
InfrastructureError.

Guaranteed: the process cannot see inputs or outputs but through the handler; no descendant outlives
the session; time spent in the handler or waiting for a core is not counted as the candidate's.
"""

from __future__ import annotations

import re
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

import psutil

from coding_framework.cuda.host.gaps import is_listed, is_toolkit_function
from coding_framework.cuda.host.program import program_of
from coding_framework.cuda.host.properties import H200, DeviceProperties
from coding_framework.cuda.host.wire import (
    MAX_MESSAGE_BYTES,
    AboutCall,
    CudaCallError,
    HostArg,
    Kind,
    Malformed,
    Reader,
    RuntimeHandler,
    clean_text,
    decode_about,
    decode_launch,
    decode_layout,
    decode_order,
    decode_result,
    encode_call,
    encode_setup,
)
from coding_framework.cuda.plan.launch_plan import RAISED, CandidateFault, ModuleInfo, TensorRef
from coding_framework.cuda.sandbox import Job, Limits, Sandbox
from coding_framework.errors import InfrastructureError, SandboxError
from coding_framework.paths import write_error
from coding_framework.types import Status

HOST_LIMITS = Limits(cpu_s=10, wall_s=600.0, file_bytes=1 << 20, open_files=128)
"""CPU time is that of the whole session: loading and every call."""

MAX_RUNTIME_CALLS = 200_000
MAX_UPLOAD_BYTES = 4 << 30
_START_S = 60.0
_SILENCE_S = 3.0
"""A process that sleeps this long without having asked for anything will never answer: the runner's
system call filter leaves it nothing to wait for."""

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
_SIGKILL, _SIGXCPU, _SIGXFSZ, _SIGSYS = 9, 24, 25, 31
_LIBRARY_SYMBOL = re.compile(
    r"^(?:cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor|nccl|nvjpeg|npp|at::|torch::|c10::)"
)
_ENDED = "the host code ended its process"

T = TypeVar("T")


class HostSession:
    """One host process. Use as a context manager; one thread at a time, which must outlive it."""

    def __init__(
        self,
        build: Path,
        module: ModuleInfo,
        handler: RuntimeHandler,
        sandbox: Sandbox,
        limits: Limits = HOST_LIMITS,
        *,
        properties: DeviceProperties = H200,
        on_extension: Callable[[Kind, memoryview], None] | None = None,
    ) -> None:
        """Start the process and load `build`. Raises CandidateFault(load_error, rejected,
        unsupported, ...) where the candidate cannot be loaded.

        on_extension: hears what an answer asks `load_inline` or Triton for and is not in its build.
        """
        self._module = module
        self._on_extension = on_extension
        self._handler = handler
        self._limits = limits
        self._calls = 0
        self._uploaded = 0
        self._cpu_seen_s = 0.0
        self._loading = True
        self.about = AboutCall()
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        except OSError as e:
            raise write_error(Path(tempfile.gettempdir()) / "log", e) from e
        self._channel, theirs = socket.socketpair()
        program = program_of(Path(build), sandbox)
        job = Job(
            command=program.command,
            mounts=program.mounts,
            limits=limits,
            folder=program.folder,
            random_devices=True,
            environment={"LC_ALL": "C.UTF-8", **program.environment},
            copier=program.copier,
        )
        with theirs:
            self._running = sandbox.start(job, stdin=theirs.fileno(), output=self._log)
        try:
            self._greet(sandbox.name)
            self._send(0, encode_setup(properties, module))
            self.functions = self._serve(Kind.LOADED, _read_functions)
            self._loading = False
        except BaseException:
            self.close()
            raise

    def call(
        self, arguments: Sequence[HostArg], *, function: str = "forward"
    ) -> tuple[TensorRef, ...]:
        """Call a function of the module; gives the tensors that it returned, as it claims them.
        Outputs stay allocated until the session closes. Raises CandidateFault."""
        if function not in self.functions:
            known = ", ".join(sorted(self.functions)[:5]) or "none"
            raise CandidateFault(
                Status.LOAD_ERROR, f"the module defines no function {function!r} (it has: {known})"
            )
        self._calls = 0
        self._send(0, encode_call(function, list(arguments)))
        outputs, self.about = self._serve(
            Kind.RESULT, lambda payload: (decode_result(payload), decode_about(payload))
        )
        if any(o.address == 0 and 0 not in o.shape for o in outputs):
            raise CandidateFault(Status.RUNTIME_ERROR, f"{function} returned a tensor on the CPU")
        return outputs

    @property
    def busy_ms(self) -> float | None:
        """Processor time of the process so far; None where the system does not tell."""
        try:
            processes = self._running.processes()
            return sum(_busy_ns(process.pid) for process in processes) / 1e6
        except (psutil.Error, OSError, ValueError):
            return None

    @property
    def cpu_s(self) -> float:
        """Processor time of the process, as far as it was seen: a short one is not looked at."""
        return self._cpu_seen_s

    def close(self) -> None:
        """End the process with all its descendants."""
        self._running.stop()
        self._channel.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- messages ---------------------------------------------------------------------------------

    def _greet(self, sandbox_name: str) -> None:
        """Wait for the runner's first word, said before any candidate code is in the process."""
        self._channel.settimeout(_START_S)
        try:
            head = self._channel.recv(8, socket.MSG_WAITALL)
        except TimeoutError:
            head = b""
        if head != int(Kind.HELLO).to_bytes(4, "little") + bytes(4):
            said = clean_text(self._log_tail())
            raise SandboxError(
                f"the {sandbox_name} sandbox did not start the host runner "
                f"({said or 'no output'}): choose another one with --sandbox"
            )
        self._channel.settimeout(1.0)

    def _serve(self, until: Kind, decode: Callable[[memoryview], T]) -> T:
        """Answer requests until the message `until`; gives what it says."""
        while True:
            kind, payload = self._receive()
            try:
                if kind == until:
                    return decode(payload)
                self._answer(kind, payload)
            except Malformed as e:
                raise CandidateFault(
                    Status.RUNTIME_ERROR, f"the host code broke the channel to the judge: {e}"
                ) from e

    def _answer(self, kind: int, payload: memoryview) -> None:
        """Carry out one runtime call, or raise the fault that the message reports."""
        self._calls += 1
        if self._calls > MAX_RUNTIME_CALLS:
            raise CandidateFault(
                Status.OUTPUT_LIMIT, f"more than {MAX_RUNTIME_CALLS} CUDA runtime calls"
            )
        _raise_reported(kind, payload)
        try:
            reply = self._carry_out(kind, Reader(payload))
        except CudaCallError as e:
            self._send(e.code, b"")
            return
        self._send(0, reply)

    def _carry_out(self, kind: int, reader: Reader) -> bytes:
        handler = self._handler
        match kind:
            case Kind.MALLOC:
                (nbytes,) = reader.numbers("Q")
                reader.end()
                return handler.malloc(nbytes).to_bytes(8, "little")
            case Kind.FREE:
                address, at_once = reader.numbers("QI")
                reader.end()
                handler.free(address, at_once=bool(at_once))
            case Kind.UPLOAD:
                (address,) = reader.numbers("Q")
                data = reader.rest()
                self._uploaded += len(data)
                if self._uploaded > MAX_UPLOAD_BYTES:
                    raise CandidateFault(Status.OUTPUT_LIMIT, "too many bytes copied to the device")
                handler.upload(address, data)
            case Kind.DOWNLOAD:
                address, nbytes = reader.numbers("2Q")
                reader.end()
                if nbytes > MAX_MESSAGE_BYTES:
                    raise Malformed(f"a download of {nbytes} bytes")
                return handler.download(address, nbytes)
            case Kind.COPY:
                destination, source, nbytes = reader.numbers("3Q")
                layout = decode_layout(reader, nbytes)
                handler.copy(destination, source, nbytes, layout)
            case Kind.FILL:
                address, value, nbytes = reader.numbers("QIQ")
                reader.end()
                handler.fill(address, value & 255, nbytes)
            case Kind.LAUNCH:
                handler.launch(decode_launch(reader.data, self._module))
            case Kind.SYNCHRONIZE:
                handler.synchronize()
            case Kind.ORDER:
                handler.order(*decode_order(reader))
            case Kind.EXTENSION | Kind.KERNEL if self._on_extension is not None:
                self._on_extension(Kind(kind), reader.data)
            case _:
                raise Malformed(f"message kind {kind}")
        return b""

    def _send(self, code: int, payload: bytes) -> None:
        head = code.to_bytes(4, "little") + len(payload).to_bytes(4, "little")
        view = memoryview(head + payload)
        started = silent_since = time.monotonic()
        while view:
            try:
                view = view[self._channel.send(view) :]
            except TimeoutError:
                silent_since = self._check_alive(started, silent_since)
            except OSError as e:
                raise self._died() from e
            else:
                silent_since = time.monotonic()

    def _receive(self) -> tuple[int, memoryview]:
        head = self._read(8)
        kind = int.from_bytes(head[:4], "little")
        size = int.from_bytes(head[4:], "little")
        if size > MAX_MESSAGE_BYTES:
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"the host code broke the channel to the judge: a message of {size} bytes",
            )
        return kind, memoryview(self._read(size))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, done = memoryview(data), 0
        started = time.monotonic()
        silent_since = started
        while done < size:
            try:
                n = self._channel.recv_into(view[done:])
            except TimeoutError:
                silent_since = self._check_alive(started, silent_since)
                continue
            except OSError as e:
                raise self._died() from e
            if n == 0:
                raise self._died()
            done += n
            silent_since = time.monotonic()
        return data

    # --- the process ------------------------------------------------------------------------------

    def _check_alive(self, started: float, silent_since: float) -> float:
        """While nothing arrives, or nothing is taken: a working process goes on, a sleeping one is
        given up. One that sends requests without reading our answers sleeps, too."""
        now = time.monotonic()
        if now - started > self._limits.wall_s:
            raise InfrastructureError(
                "a host process got too little CPU time: the machine is overloaded, try again"
            )
        states = []
        try:
            for process in self._running.processes():
                states.append(process.status())
                times = process.cpu_times()
                self._cpu_seen_s = max(self._cpu_seen_s, times.user + times.system)
        except psutil.Error:
            return silent_since  # it is ending: the channel says so next
        if any(s != psutil.STATUS_SLEEPING for s in states):
            return now
        if now - silent_since > _SILENCE_S:
            raise CandidateFault(Status.TIMEOUT, "the host code stopped without an answer")
        return silent_since

    def _died(self) -> CandidateFault | InfrastructureError:
        """What the end of the process says about the candidate."""
        end = self._running.wait(10.0)
        code = end.code
        said = clean_text(self._log_tail())[-300:]
        tail = f": {said}" if said else ""
        when = "while it was loaded" if self._loading else "before forward returned"
        if code == -_SIGXCPU or (code == -_SIGKILL and self._cpu_seen_s >= self._limits.cpu_s / 2):
            return CandidateFault(
                Status.TIMEOUT, f"the host code used more than {self._limits.cpu_s} s of CPU time"
            )
        if end.out_of_memory or "bad_alloc" in said:
            return CandidateFault(Status.MEMORY_LIMIT, "the host code ran out of memory")
        if code == -_SIGSYS:
            return _asked("a system call that no launch needs")
        if code == -_SIGXFSZ:
            return CandidateFault(Status.OUTPUT_LIMIT, "the host code printed too much")
        if code == -_SIGKILL:
            return InfrastructureError(
                "a host process was killed from outside: look for memory pressure, and try again"
            )
        status = Status.LOAD_ERROR if self._loading else Status.RUNTIME_ERROR
        if code < 0:
            name = _SIGNALS.get(-code, f"signal {-code}")
            return CandidateFault(status, f"the host code died of {name} {when}{tail}")
        return CandidateFault(status, f"{_ENDED} (exit {code}) {when}{tail}")

    def _log_tail(self) -> bytes:
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - 2000))
        return self._log.read()


def _busy_ns(pid: int) -> int:
    """Of the first thread of a process: host code has no other."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _read_functions(payload: memoryview) -> dict[str, int]:
    """The module's functions with their number of parameters."""
    reader = Reader(payload)
    (count,) = reader.numbers("I")
    if count > 1000:
        raise Malformed(f"{count} functions")
    functions = {}
    for _ in range(count):
        name = reader.text(400)
        (functions[name],) = reader.numbers("I")
    return functions


def _raise_reported(kind: int, payload: memoryview) -> None:
    """Faults that the runner reports in words."""
    match kind:
        case Kind.LOAD_FAILED:
            raise _load_fault(clean_text(bytes(payload)))
        case Kind.REJECTED:
            symbol = clean_text(bytes(payload))
            if ": " in symbol:
                raise CandidateFault(Status.REJECTED, f"the kernel uses {symbol}")
            raise CandidateFault(
                Status.REJECTED, f"the kernel calls {symbol}: it must compute in its own kernels"
            )
        case Kind.ASKED:
            raise _asked(clean_text(bytes(payload)))
        case Kind.UNSUPPORTED:
            raise _gap(clean_text(bytes(payload)))
        case Kind.RAISED:
            reader = Reader(payload)
            (trouble,) = reader.numbers("I")
            text = clean_text(reader.text(2000))
            if trouble == 2:
                raise CandidateFault(Status.MEMORY_LIMIT, "the host code ran out of memory")
            prefix = "" if trouble == 1 else RAISED
            raise CandidateFault(Status.RUNTIME_ERROR, f"{prefix}{text}")
        case Kind.CRASHED:
            number, address, on_device = Reader(payload).numbers("IQI")
            raise _crash_fault(number, address, bool(on_device))


def _asked(what: str) -> CandidateFault:
    return CandidateFault(
        Status.REJECTED, f"host code asks for {what}: its inputs are all that it may depend on"
    )


def _gap(text: str) -> CandidateFault:
    """A claim that something is missing here: a gap of ours only where our lists have it."""
    if is_listed(text) or is_toolkit_function(text):
        return CandidateFault(Status.UNSUPPORTED, f"not supported yet: {text}")
    return CandidateFault(
        Status.RUNTIME_ERROR, f"the host code ended its process and named no gap of ours: {text}"
    )


def _load_fault(text: str) -> CandidateFault:
    _, mark, symbol = text.partition("undefined symbol: ")
    if not mark:
        if text == "no PYBIND11_MODULE":
            text = "the source has no PYBIND11_MODULE that defines forward"
        return CandidateFault(Status.LOAD_ERROR, text)
    if _LIBRARY_SYMBOL.match(symbol):
        return CandidateFault(
            Status.REJECTED, f"the kernel calls {symbol}: it must compute in its own kernels"
        )
    if is_toolkit_function(symbol):
        return _gap(symbol)
    return CandidateFault(Status.LOAD_ERROR, f"{symbol} is declared and not defined")


def _crash_fault(number: int, address: int, on_device: bool) -> CandidateFault:
    reason = f"the host code died of {_SIGNALS.get(number, f'signal {number}')}"
    if number in (7, 11):
        reason += f" at address {address:#x}"
    if on_device:
        reason += ": device memory cannot be read or written by host code"
    return CandidateFault(Status.RUNTIME_ERROR, reason)

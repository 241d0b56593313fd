"""Host code that attacks: each attack gets its status, nothing survives, the next run is honest."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.host.session import HostSession
from coding_framework.cuda.host.wire import MAX_MESSAGE_BYTES
from coding_framework.cuda.plan.launch_plan import CandidateFault, Launch, ModuleInfo
from coding_framework.cuda.sandbox import Limits, Sandbox, choose_sandbox
from coding_framework.errors import InfrastructureError, MissingToolError
from coding_framework.types import Status
from support.host_fixtures import RecordingDevice, module_of
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration

LIMITS = Limits(
    cpu_s=1, wall_s=PATIENCE_S, memory_bytes=1 << 29, file_bytes=1 << 16, open_files=128
)
PATIENT = replace(LIMITS, cpu_s=30)
"""For attacks on the memory limit: to fill half a gigabyte takes some machines over a second."""
SOURCE = (Path(__file__).parent / "hostile_host.cu").read_text()


@pytest.fixture(params=["bubblewrap", "native"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return choose_sandbox(request.param)
    except MissingToolError as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def build(compiler: CUDACompiler) -> Path:
    result = compiler.compile_source(SOURCE)
    assert result.success, result.errors
    return Path(str(result.binary_path))


@pytest.fixture(scope="module")
def module(build: Path) -> ModuleInfo:
    return module_of(build)


def children() -> list[int]:
    return [p.pid for p in psutil.Process().children(recursive=True)]


@pytest.fixture(autouse=True)
def nothing_survives() -> Iterator[None]:
    before = set(children())
    files = len(os.listdir("/proc/self/fd"))
    yield
    until(lambda: set(children()) <= before)
    assert len(os.listdir("/proc/self/fd")) <= files


def run(
    build: Path,
    module: ModuleInfo,
    sandbox: Sandbox,
    which: int,
    argument: int = 0,
    limits: Limits = LIMITS,
) -> RecordingDevice:
    """One attack, then an honest call in a session of its own."""
    device = RecordingDevice()
    try:
        with HostSession(build, module, device, sandbox, limits) as session:
            session.call([device.tensor(8), which, argument])
    finally:
        after = RecordingDevice()
        with HostSession(build, module, after, sandbox, limits) as session:
            assert len(session.call([after.tensor(8), 0, 0])) == 1
        assert len(after.launches) == 1
    return device


def limits_of(status: Status) -> Limits:
    return PATIENT if status is Status.MEMORY_LIMIT else LIMITS


_ATTEMPTS = {"processes": (7, 10), "files": (8, 14), "network": (9, 4), "limits": (10, 2)}


@pytest.mark.parametrize(
    ("which", "attempt"),
    [
        pytest.param(which, attempt, id=f"{name}-{attempt}")
        for name, (which, count) in _ATTEMPTS.items()
        for attempt in range(1, count + 1)
    ]
    + [pytest.param(32, 0, id="driver")],
)
def test_what_the_process_may_not_do_ends_it(
    build: Path, module: ModuleInfo, sandbox: Sandbox, which: int, attempt: int
) -> None:
    with pytest.raises(CandidateFault, match="host code asks for") as fault:
        run(build, module, sandbox, which, attempt)
    assert fault.value.status is Status.REJECTED


def test_there_are_no_further_attempts(build: Path, module: ModuleInfo) -> None:
    for which, count in _ATTEMPTS.values():
        further = count + (2 if which == 10 else 1)  # the last of the limits is one on memory
        assert len(run(build, module, choose_sandbox("auto"), which, further).launches) == 1


@pytest.mark.parametrize(
    ("which", "status", "text"),
    [
        (1, Status.RUNTIME_ERROR, "ended its process (exit 0)"),
        (2, Status.RUNTIME_ERROR, "ended its process (exit 0)"),
        (3, Status.RUNTIME_ERROR, "SIGABRT"),
        (4, Status.TIMEOUT, "CPU time"),
        (5, Status.RUNTIME_ERROR, "SIGSEGV at address 0x7"),
        (6, Status.RUNTIME_ERROR, "device memory cannot be read"),
        (11, Status.MEMORY_LIMIT, "memory"),
        (12, Status.MEMORY_LIMIT, "memory"),
        (13, Status.OUTPUT_LIMIT, "printed too much"),
        (14, Status.REJECTED, "a pause"),
        (15, Status.TIMEOUT, "stopped without an answer"),
        (16, Status.REJECTED, "a signal handler"),
        (17, Status.RUNTIME_ERROR, "SIGSEGV"),
        (18, Status.RUNTIME_ERROR, "no std::exception"),
        (19, Status.RUNTIME_ERROR, "inside noexcept"),
        (20, Status.RUNTIME_ERROR, "on the CPU"),
        (21, Status.RUNTIME_ERROR, "broke the channel"),
        (22, Status.RUNTIME_ERROR, "broke the channel"),
        (23, Status.RUNTIME_ERROR, "broke the channel"),
        (25, Status.RUNTIME_ERROR, "full"),
        (27, Status.RUNTIME_ERROR, "SIGSEGV at address 0x10"),
        (28, Status.MEMORY_LIMIT, "memory"),
        (29, Status.RUNTIME_ERROR, "SIGFPE"),
        (31, Status.REJECTED, "a signal handler"),
        (33, Status.RUNTIME_ERROR, "invalid argument"),
    ],
)
def test_attacks_get_their_status(
    build: Path, module: ModuleInfo, which: int, status: Status, text: str
) -> None:
    sandbox = choose_sandbox("auto")
    with pytest.raises(CandidateFault) as fault:
        run(build, module, sandbox, which, limits=limits_of(status))
    assert (fault.value.status, text in fault.value.reason) == (status, True), fault.value.reason


@pytest.mark.parametrize(
    ("which", "status"),
    [(4, Status.TIMEOUT), (11, Status.MEMORY_LIMIT), (13, Status.OUTPUT_LIMIT)],
)
def test_limits_hold_in_every_sandbox(
    build: Path, module: ModuleInfo, sandbox: Sandbox, which: int, status: Status
) -> None:
    with pytest.raises(CandidateFault) as fault:
        run(build, module, sandbox, which, limits=limits_of(status))
    assert fault.value.status is status


@pytest.mark.parametrize("seed", range(12))
def test_random_messages_never_pass_for_our_own_failure(
    build: Path, module: ModuleInfo, seed: int
) -> None:
    with pytest.raises(CandidateFault):
        run(build, module, choose_sandbox("auto"), 24, seed)


class StrictDevice(RecordingDevice):
    """Fails where a value reaches the handler that the session should have kept out."""

    def launch(self, launch: Launch) -> None:
        assert launch.kernel == "_Z6honestPf"
        assert len(launch.params) == 8
        assert all(n >= 1 for n in (*launch.grid, *launch.block))
        assert math.prod(launch.block) <= 1024
        assert launch.shared_bytes <= 232_448
        super().launch(launch)

    def download(self, address: int, nbytes: int) -> bytes:
        assert nbytes <= MAX_MESSAGE_BYTES
        return super().download(address, nbytes)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        assert 0 <= value <= 255
        super().fill(address, value, nbytes)


@pytest.mark.parametrize("seed", range(16))
def test_requests_at_the_edges_are_answered_or_end_as_a_fault(
    build: Path, module: ModuleInfo, seed: int
) -> None:
    device = StrictDevice()
    with HostSession(build, module, device, choose_sandbox("auto"), LIMITS) as session:
        x = device.tensor(64)
        try:
            assert len(session.call([x, 34, seed])) == 1
        except CandidateFault as fault:
            assert fault.status in (Status.RUNTIME_ERROR, Status.OUTPUT_LIMIT)  # noqa: PT017


def test_a_closed_channel_is_the_candidates_fault(build: Path, module: ModuleInfo) -> None:
    with pytest.raises(CandidateFault) as fault:
        run(build, module, choose_sandbox("auto"), 30)
    assert fault.value.status is Status.RUNTIME_ERROR


def test_endless_runtime_calls_are_bounded(
    build: Path, module: ModuleInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coding_framework.cuda.host.session.MAX_RUNTIME_CALLS", 2000)
    with pytest.raises(CandidateFault, match="more than 2000") as fault:
        run(build, module, choose_sandbox("auto"), 26)
    assert fault.value.status is Status.OUTPUT_LIMIT


def test_a_process_killed_from_outside_is_our_fault(
    build: Path, module: ModuleInfo, sandbox: Sandbox
) -> None:
    class KillingDevice(RecordingDevice):
        def launch(self, launch: object) -> None:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # another, which ended meanwhile
                    if process.name() == "host_runner":
                        process.kill()

    device = KillingDevice()
    with (
        pytest.raises(InfrastructureError, match="killed from outside"),
        HostSession(build, module, device, sandbox, LIMITS) as session,
    ):
        session.call([device.tensor(8), 0, 0])


CONSTRUCTORS = {
    "exits": ("struct A { A() { exit(0); } } a;", Status.LOAD_ERROR, "exit 0"),
    "spins": (
        "struct A { A() { for (volatile int i = 0;; i = i + 1) {} } } a;",
        Status.TIMEOUT,
        "CPU",
    ),
    "forks": (
        "struct A { A() { if (fork() == -1) abort(); } } a;",
        Status.REJECTED,
        "another process",
    ),
    "throws": ("struct A { A() { throw 1; } } a;", Status.LOAD_ERROR, "SIGABRT"),
}


@pytest.mark.parametrize("name", sorted(CONSTRUCTORS))
def test_static_constructors_that_attack_fail_to_load(
    compiler: CUDACompiler, sandbox: Sandbox, name: str
) -> None:
    code, status, text = CONSTRUCTORS[name]
    source = f"#include <stdlib.h>\n#include <unistd.h>\n{code}\n__global__ void k() {{}}\n"
    result = compiler.compile_source(source)
    assert result.success
    build = Path(str(result.binary_path))
    with pytest.raises(CandidateFault) as fault:
        HostSession(build, module_of(build), RecordingDevice(), sandbox, LIMITS)
    assert (fault.value.status, text in fault.value.reason) == (status, True), fault.value.reason

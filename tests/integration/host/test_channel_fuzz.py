"""The channel to host code, fuzzed: whatever arrives is the candidate's fault or harmless.

A thread plays the host process at the other end of the real channel; session, recorder, device and
replay are the real ones. It sends what no runner of ours would: any kind, any bytes, lengths that
lie, addresses that were never given out, in any order.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_framework.cuda.compiler import CUDACompiler
from coding_framework.cuda.emulator.device import EmulatorDevice
from coding_framework.cuda.emulator.modelled_time import modelled_time_ms
from coding_framework.cuda.emulator.settings import EmulatorSettings
from coding_framework.cuda.host.case_run import CaseRun
from coding_framework.cuda.host.plan_recorder import PlanRecorder, RunLimits
from coding_framework.cuda.host.session import HOST_LIMITS, HostSession
from coding_framework.cuda.host.wire import MAX_MESSAGE_BYTES, Kind
from coding_framework.cuda.plan.difference import PlanReader, host_share
from coding_framework.cuda.plan.launch_plan import CandidateFault, Launch, ModuleInfo
from coding_framework.cuda.sandbox import Exit, Job
from coding_framework.types import Status
from support.judge_tasks import DOUBLE

pytestmark = pytest.mark.integration

INPUT = torch.arange(640, dtype=torch.float32)
LIMITS = RunLimits(memory_bytes=1 << 24, upload_bytes=1 << 22, operations=500, instructions=100_000)
SETTINGS = EmulatorSettings(instruction_budget=100_000, memory_limit_bytes=1 << 25)
NUMBERS = (0, 1, 4, 255, 2560, 1 << 24, 2**31, 2**32 - 1, 2**47, 2**63 - 1, 2**63, 2**64 - 1)


class Peer:
    """Plays the host process: `Sandbox` and `Running` in one, on a thread."""

    name, system = "thread", ""

    def __init__(self, play: Callable[[socket.socket], None]) -> None:
        self._play = play
        self._end: socket.socket | None = None

    def missing(self) -> str | None:
        return None

    def path(self, mount: object) -> str:
        return "/"

    def start(self, job: Job, *, stdin: int, output: object) -> Peer:
        self._end = socket.socket(fileno=os.dup(stdin))
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def _run(self) -> None:
        assert self._end is not None
        with suppress(OSError), self._end:
            send(self._end, Kind.HELLO, b"")
            receive(self._end)
            self._play(self._end)

    def wait(self, wall_s: float) -> Exit:
        return Exit(code=0, cpu_s=0.0)

    def stop(self) -> None:
        if self._end is not None:
            with suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)

    def processes(self) -> list[object]:
        return []


def send(end: socket.socket, kind: int, payload: bytes, size: int | None = None) -> None:
    end.sendall(struct.pack("<II", kind, len(payload) if size is None else size) + payload)


def receive(end: socket.socket) -> tuple[int, bytes]:
    code, size = struct.unpack("<II", _exactly(end, 8))
    return code, _exactly(end, size)


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(min(1 << 20, size - len(data)))
        if not part:
            raise OSError("closed")
        data += part
    return data


@pytest.fixture(scope="module")
def build(compiler: CUDACompiler) -> Path:
    result = compiler.compile_source(DOUBLE)
    assert result.success, result.errors
    return Path(str(result.binary_path))


def judge_session(build: Path, play: Callable[[socket.socket], None]) -> CandidateFault | None:
    """A host run and a replay of whatever it asked for; the fault that ends them, if any. What is
    no CandidateFault would be our fault, and fails the test."""
    with closing(EmulatorDevice(SETTINGS)) as device:
        module = device.load(build)
        recorder = PlanRecorder(device, LIMITS)
        run = CaseRun(device, recorder, [INPUT])
        fault = None
        try:
            with HostSession(build, module, recorder, Peer(play), HOST_LIMITS) as host:
                plan, _ = run.host_run(host, [INPUT], ())
                run.replay(plan, [INPUT + 1], fill=0xA5)
                reader = PlanReader(module, run.input_regions, recorder.blocks)
                assert reader.difference(plan, plan) is None
                host_share(plan, 2560)
                modelled_time_ms(plan, (), "NVIDIA H200")
        except CandidateFault as e:
            fault = e
        assert_still_honest(device, module)
    return fault


def assert_still_honest(device: EmulatorDevice, module: ModuleInfo) -> None:
    """The device computes for us as before, whatever it was asked."""
    x, y = device.alloc(INPUT.nbytes), device.alloc(INPUT.nbytes)
    device.upload(x, INPUT.numpy().tobytes())
    (kernel,) = module.kernels
    params = struct.pack("<QQi", x, y, INPUT.numel())
    device.launch(Launch(kernel, (3, 1, 1), (256, 1, 1), 0, params))
    out = torch.frombuffer(bytearray(device.download(y, INPUT.nbytes)), dtype=torch.float32)
    assert torch.equal(out, 2 * INPUT + 1)


class Fuzzer:
    """Messages that are right in form, in part, and wrong in what they say."""

    def __init__(self, seed: int, kernel: str) -> None:
        self._random = Random(seed)
        self._kernel = kernel.encode()
        self._addresses = [0x7E00_0010_0100]

    def __call__(self, end: socket.socket) -> None:
        pick = self._random
        send(end, Kind.LOADED, struct.pack("<II", 1, 7) + b"forward" + struct.pack("<I", 1))
        receive(end)
        for _ in range(pick.randrange(1, 25)):
            kind = pick.choice([*Kind, *Kind, *Kind, 0, 99, 2**32 - 1])
            payload = self._payload(kind)
            if pick.random() < 0.1:
                payload = self._damaged(payload)
            if kind == Kind.RESULT or (kind >= Kind.RAISED and pick.random() < 0.9):
                continue
            send(end, kind, payload)
            code, answer = receive(end)
            if kind == Kind.MALLOC and code == 0:
                self._addresses.append(int.from_bytes(answer, "little"))
        send(end, Kind.RESULT, self._payload(Kind.RESULT))

    def _payload(self, kind: int) -> bytes:
        pick, number, address = self._random, self._number, self._address
        match kind:
            case Kind.MALLOC:
                return struct.pack("<Q", pick.choice([16, 2560, 4096, number()]))
            case Kind.FREE:
                return struct.pack("<Q", address())
            case Kind.UPLOAD:
                return struct.pack("<Q", address()) + pick.randbytes(pick.choice([0, 1, 16, 3000]))
            case Kind.DOWNLOAD:
                return struct.pack("<QQ", address(), pick.choice([4, 16, number()]))
            case Kind.COPY:
                return struct.pack("<QQQ", address(), address(), pick.choice([16, number()]))
            case Kind.FILL:
                size = pick.choice([16, number()])
                return struct.pack("<QIQ", address(), pick.randrange(2**32), size)
            case Kind.LAUNCH:
                return self._launch()
            case Kind.RESULT:
                return self._result()
        return pick.randbytes(pick.randrange(40))

    def _launch(self) -> bytes:
        pick, name = self._random, self._random.choice([self._kernel] * 5 + [b"", b"k" * 5000])
        grid = [pick.choice([1, 1, 3, self._number() & 0xFFFFFFFF]) for _ in range(6)]
        head = struct.pack("<I", len(name)) + name + struct.pack("<6I", *grid)
        head += struct.pack(
            "<QQI", pick.choice([0, 64, self._number()]), self._number(), pick.randrange(3)
        )
        count = pick.choice([640, 10**6, 2**31 - 1])
        return head + struct.pack("<QQi", self._address(), self._address(), count)

    def _result(self) -> bytes:
        pick = self._random
        dims = pick.choice([0, 1, 1, 2, 16, 17])
        shape = [pick.choice([640, 0, 1, self._number() >> 1]) for _ in range(dims)]
        strides = [pick.choice([1, 0, self._number() >> 1]) for _ in range(dims)]
        code = pick.choice([6, 6, 11, 15, 4, 99])
        body = struct.pack("<IIQI", code, pick.choice([1, 1, 0]), self._address(), dims)
        return (
            struct.pack("<I", pick.choice([1, 1, 1, 300]))
            + body
            + struct.pack(f"<{2 * dims}q", *shape, *strides)
        )

    def _address(self) -> int:
        pick = self._random
        near = pick.choice(self._addresses) + pick.choice([0, 0, 0, 4, 2556, -1, 256])
        return pick.choice([near, near, near, self._number()])

    def _number(self) -> int:
        return (self._random.choice(NUMBERS) + self._random.choice([0, 0, 1, -1])) % 2**64

    def _damaged(self, payload: bytes) -> bytes:
        cut = self._random.randrange(len(payload) + 1)
        return self._random.choice([payload[:cut], payload + b"more", self._random.randbytes(cut)])


@settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", 10)),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32))
def test_messages_that_lie_are_the_candidates_fault_or_harmless(build: Path, seed: int) -> None:
    (kernel,) = _module(build).kernels
    fault = judge_session(build, Fuzzer(seed, kernel))
    assert fault is None or fault.status in {
        Status.RUNTIME_ERROR,
        Status.MEMORY_LIMIT,
        Status.TIMEOUT,
        Status.LOAD_ERROR,
        Status.REJECTED,
        Status.UNSUPPORTED,
    }


@settings(max_examples=20)
@given(data=st.binary(max_size=200), loaded=st.booleans())
def test_bytes_without_any_form_end_the_session(build: Path, data: bytes, loaded: bool) -> None:
    def play(end: socket.socket) -> None:
        if loaded:
            send(end, Kind.LOADED, struct.pack("<II", 1, 7) + b"forward" + struct.pack("<I", 1))
        end.sendall(data)

    assert judge_session(build, play) is not None


@pytest.mark.parametrize(
    "shape", [(0, 2**47, 2**47), (2**24, 2**24), (1,) * 16], ids=["empty", "large", "deep"]
)
def test_an_output_of_any_claimed_size_costs_no_memory(build: Path, shape: tuple[int, ...]) -> None:
    def play(end: socket.socket) -> None:
        send(end, Kind.LOADED, struct.pack("<II", 1, 7) + b"forward" + struct.pack("<I", 1))
        receive(end)
        head = struct.pack("<IIIQI", 1, 6, 1, 0x7E00_0010_0100, len(shape))
        send(end, Kind.RESULT, head + struct.pack(f"<{2 * len(shape)}q", *shape, *[0] * len(shape)))

    fault = judge_session(build, play)
    assert fault is None or fault.status in {Status.RUNTIME_ERROR, Status.MEMORY_LIMIT}


def test_a_message_longer_than_any_is_refused_before_it_is_read(build: Path) -> None:
    def play(end: socket.socket) -> None:
        send(end, Kind.UPLOAD, b"", size=MAX_MESSAGE_BYTES + 1)

    fault = judge_session(build, play)
    assert fault is not None
    assert f"{MAX_MESSAGE_BYTES + 1} bytes" in fault.reason


def test_requests_without_reading_the_answers_do_not_hold_the_judge(build: Path) -> None:
    def play(end: socket.socket) -> None:
        send(end, Kind.LOADED, struct.pack("<II", 1, 7) + b"forward" + struct.pack("<I", 1))
        receive(end)
        send(end, Kind.MALLOC, struct.pack("<Q", 1 << 23))
        address = int.from_bytes(receive(end)[1], "little")
        while True:
            send(end, Kind.DOWNLOAD, struct.pack("<QQ", address, 1 << 23))

    started = time.monotonic()
    fault = judge_session(build, play)
    assert fault is not None
    assert fault.status is Status.TIMEOUT
    assert time.monotonic() - started < 60


def _module(build: Path) -> ModuleInfo:
    with closing(EmulatorDevice(replace(SETTINGS, count=False))) as device:
        return device.load(build)

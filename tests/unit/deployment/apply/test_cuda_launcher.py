"""What the CUDA launcher does before the driver: whose receipts hold, and what a launch is given.

The driver is replaced by functions of its signatures, which read what they are given as the driver
would; launches on a real GPU are in `tests/integration/test_apply_gpu.py`.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coding_framework.cuda.gpu.driver import DriverError
from coding_framework.deployment.apply import cuda_launcher
from coding_framework.deployment.apply.cuda_launcher import CudaLauncher, _Function, _Module
from coding_framework.deployment.apply.kernel_set import CallShape, KernelSet, Options
from coding_framework.deployment.apply.launching import LaunchError, LoadError, chosen_code
from coding_framework.registry.templates import (
    CopyStep,
    DeviceCode,
    FillStep,
    LaunchTemplate,
    Place,
    UploadStep,
)
from support.applied import offer, template

pytestmark = pytest.mark.unit
H200, H100 = ("NVIDIA H200", "580.1", 90), ("NVIDIA H100", "580.1", 90)
_UINT = ctypes.c_uint
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[_UINT] * 7, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
)  # fmt: skip
_FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p
)
_UPLOAD = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)


def launcher(*devices: tuple[str, str, int]) -> CudaLauncher:
    """Of a machine with these GPUs."""
    made = CudaLauncher.__new__(CudaLauncher)
    made._devices = dict(enumerate(devices))
    return made


def choose(made: CudaLauncher, device: int, **options: Any) -> object:
    kernels = KernelSet(Path("/nonexistent"), made, Options(**options))
    kernels.take([offer(template(), device="NVIDIA H200", driver="580.1", sm="90")])
    call = CallShape(((torch.float32, (4, 32), (32, 1)), (torch.float32, (32,), (1,))), (), device)
    return kernels.choose("bias_gelu", call, False)


def test_a_receipt_holds_for_its_own_gpu_of_two_different_ones() -> None:
    made = launcher(H200, H100)
    assert not isinstance(choose(made, 0), str)
    with pytest.warns(
        RuntimeWarning, match=r"not used on NVIDIA H100 .* `cuda-rl kernel reverify`"
    ):
        assert choose(made, 1) == "device"


def test_another_driver_than_the_receipts_makes_it_stale() -> None:
    newer = launcher(("NVIDIA H200", "590.2", 90))
    with pytest.warns(RuntimeWarning, match=r"driver 580\.1 and are not used on .* driver 590\.2"):
        assert choose(newer, 0) == "driver"
    assert not isinstance(choose(newer, 0, allow_stale=True), str)
    with pytest.warns(RuntimeWarning, match="judged on NVIDIA H200"):
        assert choose(launcher(H100), 0, allow_stale=True) == "device"
    emulated = launcher(H200).device_refuses("emulator of NVIDIA H200", "", "90", 0)
    assert emulated == "device"


def test_the_cubin_of_the_architecture_comes_before_ptx_and_newer_code_never() -> None:
    codes = [
        DeviceCode(sm=sm, form=form, sha256=64 * "0")
        for sm, form in (("80", "ptx"), ("90", "ptx"), ("100", "ptx"), ("90", "cubin"))
    ]
    made = template(code=tuple(codes))
    forms = [(code.sm, code.form) for code in chosen_code(made, 90)]
    assert forms == [("90", "cubin"), ("90", "ptx"), ("80", "ptx")]
    assert chosen_code(template(code=(codes[2],)), 90) == ()


def module_of(made: LaunchTemplate, driver: object) -> _Module:
    """As after loading."""
    module = _Module.__new__(_Module)
    module._driver = driver
    module._template = made
    offsets = (0, 8, 16, 24, 28, 32)
    module._functions = {
        name: _Function(handle, offsets[: 6 if name == "through" else 5])
        for handle, name in ((7, "bias_gelu"), (8, "through"), (9, "finish"))
    }
    module.variables, module.frames = [], []
    return module


def test_a_frame_gives_the_driver_what_the_template_says() -> None:
    given: list[Any] = []

    def launch(function: int, *rest: Any) -> int:
        extents, (stream, params, extra) = rest[:7], rest[7:]
        at = struct.unpack("<QQQ", b"".join(ctypes.string_at(params[i], 8) for i in range(3)))
        numbers = struct.unpack("<ii", b"".join(ctypes.string_at(params[i], 4) for i in (3, 4)))
        last = struct.unpack("<Q", ctypes.string_at(params[5], 8)) if function == 8 else ()
        given.append((function, extents, stream, at, numbers, last, extra))
        return 0

    def fill(to: int, value: int, nbytes: int, stream: int) -> int:
        given.append(("fill", to, value, nbytes, stream))
        return 0

    driver = SimpleNamespace(cuLaunchKernel=_LAUNCH(launch), cuMemsetD8Async=_FILL(fill))
    made = template(entry="through")
    frame = module_of(made, driver).new_frame()
    for addresses in ([0x1000, 0x2000, 0x3000, 0x4000], [0x5000, 0x6000, 0x7000, 0x8000]):
        given.clear()
        for slot, (region, offset) in zip(frame.slots, frame.places, strict=True):
            slot.value = addresses[region] + offset
        frame.stream.value = 77
        assert [step() for step in frame.steps] == [0, 0, 0]
        x, b, out, row = addresses
        extents = (1, 1, 1, 128, 1, 1, 0)
        assert given == [
            ("fill", row, 0, 128, 77),
            (8, extents, 77, (x, b, out), (128, 32), (row,), None),
            (9, extents, 77, (x, row, out), (128, 32), (), None),
        ]


@pytest.mark.parametrize("entry", ["bias_gelu", "through"])
def test_a_call_gives_the_driver_its_own_addresses_and_stream(
    monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    given: list[tuple[int, int, tuple[int, ...]]] = []
    errors = [201, 0]  # of a thread that used no CUDA yet

    def launch(function: int, *rest: Any) -> int:
        stream, params = rest[7:9]
        at = struct.unpack("<QQQ", b"".join(ctypes.string_at(params[i], 8) for i in range(3)))
        given.append((function, stream, at))
        return errors.pop(0) if errors else 0

    made = template(entry=entry)
    driver = SimpleNamespace(
        cuLaunchKernel=_LAUNCH(launch), cuMemsetD8Async=_FILL(lambda *given: 0)
    )
    entered: list[int] = []
    streams = iter([0x1234567890, 78, 79])
    monkeypatch.setattr(cuda_launcher, "_Module", lambda *given: module_of(made, driver))
    monkeypatch.setattr(cuda_launcher, "_current_device", lambda: 0)
    monkeypatch.setattr(cuda_launcher, "_current_stream", lambda index: next(streams))
    monkeypatch.setattr(cuda_launcher, "_enter_context", entered.append)
    on_cpu = torch._C._dynamo.guards._empty_strided_cpu
    monkeypatch.setattr(cuda_launcher, "_empty_strided", on_cpu)
    call = cuda_launcher._Prepared(driver, made, b"", 0).launch
    x, b = torch.randn(4, 32), torch.randn(32)
    (first,) = call((x, b), (x.data_ptr(), b.data_ptr()))
    (second,) = call((x, b), (b.data_ptr(), x.data_ptr()))
    assert entered == [0]
    assert first.shape == second.shape == (4, 32)
    at = (x.data_ptr(), b.data_ptr(), first.data_ptr())
    assert given[0] == given[1]  # once more, in the context
    assert given[1] == (8 if entry == "through" else 7, 0x1234567890, at)
    if entry == "bias_gelu":
        assert given[2] == (7, 78, (at[1], at[0], second.data_ptr()))
    else:  # the temporary is another one than the output
        assert given[2][2][0] == at[0]
        assert given[2][2][1] not in at
    errors.append(700)
    with pytest.raises(LaunchError, match="illegal address"):
        call((x, b), at[:2])


DRIVER = """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
static uint64_t got[256]; static int n;
static void put(uint64_t v) { got[n++] = v; }
int cuMemsetD8Async(uint64_t to, unsigned char v, size_t bytes, void* stream) {
  put(1); put(to); put(v); put(bytes); put((uint64_t)stream); return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  put(2); put(to); put(from); put(bytes); put((uint64_t)stream); return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  uint64_t first; memcpy(&first, from, 8);
  put(3); put(to); put(first); put(bytes); put((uint64_t)stream); return 0;
}
static int launch(int kind, void* f, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y,
                  unsigned z, unsigned shared, void* stream, void** params) {
  unsigned all[] = {a, b, c, x, y, z, shared};
  put(kind); put((uint64_t)f);
  for (int i = 0; i < 7; i++) put(all[i]);
  put((uint64_t)stream);
  for (int i = 0; i < 3; i++) { uint64_t v; memcpy(&v, params[i], 8); put(v); }
  for (int i = 3; i < 5; i++) { uint32_t v; memcpy(&v, params[i], 4); put(v); }
  return 0;
}
int cuLaunchKernel(void* f, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y, unsigned z,
                   unsigned shared, void* stream, void** params, void** extra) {
  put((uint64_t)extra);
  return launch(4, f, a, b, c, x, y, z, shared, stream, params);
}
int cuLaunchCooperativeKernel(void* f, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y,
                              unsigned z, unsigned shared, void* stream, void** params) {
  return launch(5, f, a, b, c, x, y, z, shared, stream, params);
}
int taken(uint64_t* to) { memcpy(to, got, n * 8); int m = n; n = 0; return m; }
"""


def test_a_driver_in_c_reads_every_step_as_it_is_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the machine's own calling convention, and with numbers beyond 32 bits."""
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "driver.so"
    subprocess.run(
        ["g++", "-xc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True
    )
    driver = ctypes.CDLL(str(library))
    made = template()
    (launch,) = made.launches
    grid = launch.model_copy(update={"grid": (2**31 - 1, 65535, 3), "shared_bytes": 200 << 10})
    steps = (
        FillStep(to=Place(region=2, offset=16), value=0xA5, nbytes=1 << 33),
        CopyStep(to=Place(region=2, offset=8), source=Place(region=0, offset=4), nbytes=1 << 34),
        UploadStep(
            to=Place(region=2, offset=0), data=bytes(12), relocations=launch.relocations[:1]
        ),
        grid,
        launch.model_copy(update={"cooperative": True}),
    )
    made = made.model_copy(update={"steps": steps})
    stream = 0x7F00_1234_5678
    monkeypatch.setattr(cuda_launcher, "_Module", lambda *given: module_of(made, driver))
    monkeypatch.setattr(cuda_launcher, "_current_device", lambda: 0)
    monkeypatch.setattr(cuda_launcher, "_current_stream", lambda index: stream)
    on_cpu = torch._C._dynamo.guards._empty_strided_cpu
    monkeypatch.setattr(cuda_launcher, "_empty_strided", on_cpu)
    call = cuda_launcher._Prepared(driver, made, b"", 0).launch
    x, b = torch.randn(4, 32), torch.randn(32)
    got = (ctypes.c_uint64 * 256)()
    for at in ((0x7FFF_0000_1000, 0x7FFF_0000_2000), (x.data_ptr(), b.data_ptr())):
        (out,) = call((x, b), at)
        to = out.data_ptr()
        assert list(got[: driver.taken(got)]) == [
            1, to + 16, 0xA5, 1 << 33, stream,
            2, to + 8, at[0] + 4, 1 << 34, stream,
            3, to, at[0], 12, stream,
            0, 4, 7, 2**31 - 1, 65535, 3, 128, 1, 1, 200 << 10, stream, *at, to, 128, 32,
            5, 7, 1, 1, 1, 128, 1, 1, 0, stream, *at, to, 128, 32,
        ]  # fmt: skip


def test_uploaded_bytes_have_the_addresses_of_their_call() -> None:
    given: list[bytes] = []

    def upload(to: int, source: int, nbytes: int, stream: int) -> int:
        given.append(ctypes.string_at(source, nbytes))
        return 0

    made = template()
    relocations = made.launches[0].relocations[:1]
    step = UploadStep(
        to=Place(region=2, offset=0), data=bytes(8) + b"constant", relocations=relocations
    )
    made = made.model_copy(update={"steps": (step, *made.steps)})
    driver = SimpleNamespace(
        cuMemcpyHtoDAsync_v2=_UPLOAD(upload), cuLaunchKernel=_LAUNCH(lambda *given: 0)
    )
    module = module_of(made, driver)
    frame = module.new_frame()
    for slot in frame.slots:
        slot.value = 0xABCD
    assert frame.steps[0]() == 0
    assert given == [struct.pack("<Q", 0xABCD) + b"constant"]
    assert CudaLauncher.refuses_capture(launcher(), made)
    assert not CudaLauncher.refuses_capture(launcher(), template())


def test_code_of_no_architecture_here_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    newer = DeviceCode(sm="100", form="cubin", sha256=64 * "0")
    with pytest.raises(
        LoadError, match=r"no code for sm_90\. `cuda-rl kernel reverify ca978112ca1b`"
    ):
        launcher(H200).prepare(template(code=(newer,)), lambda code: b"", 0)


def test_code_that_the_driver_refuses_is_followed_by_the_next_and_at_last_by_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cubin and PTX of a newer toolkit than the driver knows."""
    refusals = {b"cubin": 209, b"ptx\0": 222}
    tried: list[bytes] = []

    def load(driver: object, made: LaunchTemplate, image: bytes, index: int) -> None:
        tried.append(image)
        raise DriverError(refusals[image], "CUDA_ERROR")

    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(cuda_launcher, "_enter_context", lambda index: None)
    monkeypatch.setattr(cuda_launcher, "_Prepared", load)
    codes = tuple(
        DeviceCode(sm="90", form=form, sha256=hashlib.sha256(form.encode()).hexdigest())
        for form in ("cubin", "ptx")
    )
    made = launcher(H200)
    made._driver = ctypes.CDLL(None)
    sentence = r"driver 580\.1 refuses its ptx of sm_90: .*222.* `cuda-rl kernel reverify"
    with pytest.raises(LoadError, match=sentence):
        made.prepare(template(code=codes), lambda code: code.form.encode(), 0)
    assert tried == [b"cubin", b"ptx\0"]

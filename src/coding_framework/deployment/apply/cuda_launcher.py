"""Templates on a GPU, through the CUDA driver, in the context and on the streams of PyTorch.

Outputs and temporaries come from PyTorch's allocator, on the current stream: so two streams never
share a temporary, and a captured graph keeps its own. Everything about a launch but the addresses
is made once; a call writes the addresses into a parameter block and enqueues.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch

from coding_framework.cuda.expected.inputs import TORCH_DTYPES
from coding_framework.cuda.gpu.driver import DriverError, call, cuda
from coding_framework.deployment.apply.launching import (
    Launcher,
    LaunchError,
    LoadError,
    PreparedCall,
    ReadCode,
    checked_code,
    chosen_code,
    compiled_here,
    require_separate_outputs,
)
from coding_framework.errors import DeviceFullError
from coding_framework.registry.templates import (
    ALIGNMENT,
    CopyStep,
    FillStep,
    LaunchStep,
    LaunchTemplate,
    Place,
    Relocation,
    UploadStep,
)

_DYNAMIC_SHARED = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_SHARED = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_SHARED_OPTIN = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_THREADS = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK

_OUT_OF_MEMORY = 2
_REFUSES_CODE = frozenset({200, 209, 218, 222})
"""Invalid image, no binary for this GPU, invalid PTX, PTX of a newer toolkit: the next code of the
template may still load."""
_NO_CONTEXT = 201
"""Of a thread in which nothing has used CUDA yet: PyTorch's calls take the device's context for it,
the driver's do not."""
# None in a PyTorch without CUDA, where this module still says what is missing
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_deterministic = torch._C._get_deterministic_algorithms
_empty_strided: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
"""On the current device and without PyTorch's dispatcher, as code of torch.compile has it: half the
time of `torch.empty_strided`."""


class CudaLauncher(Launcher):
    """Modules stay loaded when it is closed: a captured graph may launch them again."""

    device_type = "cuda"
    alignment = ALIGNMENT

    def __init__(self) -> None:
        # the functions of a launch without cuda-bindings' conversions, which take microseconds
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._devices: dict[int, tuple[str, str, int]] = {}

    def device_refuses(self, device: str, driver: str, sm: str, index: int) -> str | None:
        name, here, number = self._device(index)
        if device != name or sm.removeprefix("sm_").rstrip("af") != str(number):
            return "device"
        return "driver" if driver != here else None

    def describe(self, index: int) -> str:
        name, driver, _ = self._device(index)
        return f"{name} with driver {driver}"

    def _device(self, index: int) -> tuple[str, str, int]:
        """Name, driver and architecture of a device."""
        if index not in self._devices:
            import pynvml

            major, minor = torch.cuda.get_device_capability(index)
            pynvml.nvmlInit()
            driver = str(pynvml.nvmlSystemGetDriverVersion())
            self._devices[index] = (torch.cuda.get_device_name(index), driver, 10 * major + minor)
        return self._devices[index]

    def prepare(self, template: LaunchTemplate, read: ReadCode, index: int) -> PreparedCall:
        require_separate_outputs(template)
        name, driver, sm = self._device(index)
        refused = f"it has no code for sm_{sm}"
        with torch.cuda.device(index):
            for code in chosen_code(template, sm):
                image = checked_code(code, read)
                if code.form == "ptx":
                    image += b"\0"
                try:
                    _enter_context(index)
                    return _Prepared(self._driver, template, image, index).launch
                except DriverError as e:
                    if e.code not in _REFUSES_CODE:
                        raise LoadError(f"the driver cannot load it: {e}") from e
                    refused = f"driver {driver} refuses its {code.form} of sm_{code.sm}: {e}"
                except DeviceFullError as e:
                    raise LoadError(f"the driver cannot load it: {e}") from e
        raise LoadError(f"{refused}. {compiled_here(name, template.kernel)}")

    def refuses_capture(self, template: LaunchTemplate) -> bool:
        """A replay would read uploaded bytes from where the host had them, and variables of the
        module are shared with calls outside of the graph."""
        return template.module_state or any(isinstance(s, UploadStep) for s in template.steps)

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def wait(self, index: int) -> None:
        try:
            if index < 0:
                torch.cuda.synchronize()
            else:  # no more than the stream: another one may be being captured
                torch.cuda.current_stream(index).synchronize()
        except RuntimeError as e:
            raise LaunchError(str(e).splitlines()[0], certain=False) from e


_LAUNCH = """
def launch(tensors, addresses):
    if current_device() != index:
        with device_of(index):
            return launch(tensors, addresses)
    stream = current_stream(index)
    module = shared or module_of(stream)
    filled = deterministic()
    {given}= addresses
    {addresses}
    try:
        frame = module.frames.pop()
    except IndexError:  # as many calls at once as never before
        frame = module.new_frame()
    frame.stream.value = stream
    {slots}= frame.slots
    {values}
    for enqueue in frame.steps:
        error = enqueue()
        if error:
            failed(error, enqueue)
    module.frames.append(frame)  # the driver has copied the blocks when a launch returns
    return ({outputs})
"""


class _Prepared:
    """A template whose module is loaded on one device. `launch`, a `PreparedCall`, is made as text:
    loops over regions and slots would take as long as the driver's call."""

    def __init__(
        self, driver: ctypes.CDLL, template: LaunchTemplate, image: bytes, index: int
    ) -> None:
        self._driver = driver
        self._template = template
        self._image = image
        self._index = index
        self._modules: dict[int, _Module] = {}
        """By stream, where the module has variables that kernels write; else one at 0."""
        module = self.module_of(0)
        frame = module.new_frame()
        module.frames.append(frame)
        scope: dict[str, Any] = {
            "current_device": _current_device, "current_stream": _current_stream,
            "deterministic": _deterministic, "device_of": torch.cuda.device, "index": index,
            "shared": None if template.module_state else module, "module_of": self.module_of,
            "failed": self._failed,
        }  # fmt: skip
        addresses = self._addresses(scope)
        regions = range(len(template.arguments))
        values = (
            f"slot_{i}.value = at_{region} + {offset}"
            for i, (region, offset) in enumerate(frame.places)
        )
        text = _LAUNCH.format(
            given="".join(f"at_{r}, " for r in regions) or "() ",
            addresses="\n    ".join(addresses),
            slots="".join(f"slot_{i}, " for i in range(len(frame.slots))) or "() ",
            values="\n    ".join(values),
            outputs="".join(f"output_{o.place.region}, " for o in template.outputs),
        )
        exec(text, scope)
        self.launch: PreparedCall = scope["launch"]

    def _addresses(self, scope: dict[str, Any]) -> list[str]:
        """Lines that make outputs and temporaries, and name the address of each region. scope: gets
        what they call."""
        template, device, lines = self._template, torch.device("cuda", self._index), []
        outputs = {o.place.region for o in template.outputs}
        first = len(template.arguments)
        size = 0  # of the slab, which is one allocation for what no output is
        for region, allocation in enumerate(template.allocations, start=first):
            if region not in outputs:
                lines.append(f"at_{region} = base + {size}")
                size += (allocation.nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
                continue
            new, new_filled, whole = _new_output(template, region, device)
            scope[f"new_{region}"], scope[f"new_filled_{region}"] = new, new_filled
            lines.append(f"output_{region} = new_filled_{region}() if filled else new_{region}()")
            # of an empty tensor PyTorch tells no address; making a storage takes longer
            storage = "" if whole else ".untyped_storage()"
            lines.append(f"at_{region} = output_{region}{storage}.data_ptr()")
        if size:
            scope["new"], scope["new_filled"] = _makers((size,), (1,), torch.uint8, device)
            lines[:0] = ["slab = new_filled() if filled else new()", "base = slab.data_ptr()"]
        for i in range(len(template.variables)):
            lines.append(f"at_{first + len(template.allocations) + i} = module.variables[{i}]")
        return lines

    def _failed(self, error: int, enqueue: Callable[[], int]) -> None:
        """Enqueue again where only the context was missing. Raises LaunchError."""
        if error == _NO_CONTEXT:
            _enter_context(self._index)
            error = enqueue()
        if error:
            raise _launch_error(error)

    def module_of(self, stream: int) -> _Module:
        stream = stream if self._template.module_state else 0
        found = self._modules.get(stream)
        if found is None:
            made = _Module(self._driver, self._template, self._image, self._index)
            found = self._modules[stream] = made
        return found


@dataclass(slots=True)
class _Frame:
    """Parameter blocks of one call: no two calls that run at once share one."""

    stream: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)
    slots: list[ctypes.c_uint64] = field(default_factory=list)
    """Where the addresses of a call go."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Of each slot: region and offset."""
    steps: list[Callable[[], int]] = field(default_factory=list)
    """Enqueue a step, by what is in the slots; the driver's error."""
    keep: list[Any] = field(default_factory=list)

    def address(self, place: Place) -> ctypes.c_uint64:
        """Of a place in each call."""
        self.add(slot := ctypes.c_uint64(), place.region, place.offset)
        return slot

    def add(self, slot: ctypes.c_uint64, region: int, offset: int) -> None:
        self.slots.append(slot)
        self.places.append((region, offset))


class _Module:
    """A loaded module, and frames for its calls."""

    def __init__(
        self, driver: ctypes.CDLL, template: LaunchTemplate, image: bytes, index: int
    ) -> None:
        self._driver = driver
        self._template = template
        self._module = call(cuda.cuModuleLoadData(image))
        self._functions: dict[str, _Function] = {}
        for step in template.launches:
            self._functions[step.entry] = self._function(step, index)
        self.variables: list[int] = []
        """Their addresses."""
        for variable in template.variables:
            address, _ = call(cuda.cuModuleGetGlobal(self._module, variable.name.encode()))
            self.variables.append(int(address))
        self.frames: list[_Frame] = []

    def _function(self, step: LaunchStep, index: int) -> _Function:
        function = call(cuda.cuModuleGetFunction(self._module, step.entry.encode()))
        most = max(s.shared_bytes for s in self._template.launches if s.entry == step.entry)
        static = int(call(cuda.cuFuncGetAttribute(_STATIC_SHARED, function)))
        device = call(cuda.cuDeviceGet(index))
        allowed = int(call(cuda.cuDeviceGetAttribute(_SHARED_OPTIN, device)))
        if static + most > allowed:
            raise LoadError(
                f"a block needs {static + most} bytes of shared memory; this GPU has {allowed}"
            )
        threads = int(call(cuda.cuFuncGetAttribute(_MAX_THREADS, function)))
        if math.prod(step.block) > threads:
            raise LoadError(f"it launches {math.prod(step.block)} threads a block, of {threads}")
        if most:
            call(cuda.cuFuncSetAttribute(function, _DYNAMIC_SHARED, most))
        return _Function(int(function), _offsets(function))

    def new_frame(self) -> _Frame:
        frame = _Frame()
        for step in self._template.steps:
            match step:
                case LaunchStep():
                    frame.steps.append(self._launch(step, frame))
                case FillStep():
                    frame.steps.append(self._fill(step, frame))
                case CopyStep():
                    frame.steps.append(self._copy(step, frame))
                case UploadStep():
                    frame.steps.append(self._upload(step, frame))
        return frame

    def _launch(self, step: LaunchStep, frame: _Frame) -> Callable[[], int]:
        function = self._functions[step.entry]
        block = _block(step.params, step.relocations, frame)
        pointers = (ctypes.c_void_p * max(1, len(function.offsets)))(
            *(block + offset for offset in function.offsets)
        )
        handle = ctypes.c_void_p(function.handle)
        # plain numbers are converted in half the time of ctypes' own
        given = (handle, *step.grid, *step.block, step.shared_bytes, frame.stream, pointers)
        if step.cooperative:
            return partial(self._driver.cuLaunchCooperativeKernel, *given)
        return partial(self._driver.cuLaunchKernel, *given, None)

    def _fill(self, step: FillStep, frame: _Frame) -> Callable[[], int]:
        value, nbytes = ctypes.c_ubyte(step.value), ctypes.c_size_t(step.nbytes)
        to = frame.address(step.to)
        return partial(self._driver.cuMemsetD8Async, to, value, nbytes, frame.stream)

    def _copy(self, step: CopyStep, frame: _Frame) -> Callable[[], int]:
        to, source = frame.address(step.to), frame.address(step.source)
        nbytes = ctypes.c_size_t(step.nbytes)
        return partial(self._driver.cuMemcpyDtoDAsync_v2, to, source, nbytes, frame.stream)

    def _upload(self, step: UploadStep, frame: _Frame) -> Callable[[], int]:
        block = ctypes.c_void_p(_block(step.data, step.relocations, frame))
        to, nbytes = frame.address(step.to), ctypes.c_size_t(len(step.data))
        upload = self._driver.cuMemcpyHtoDAsync_v2  # pageable: the driver has read it on return
        return partial(upload, to, block, nbytes, frame.stream)


@dataclass(frozen=True, slots=True)
class _Function:
    handle: int
    offsets: tuple[int, ...]
    """Of its parameters in the block."""


def _enter_context(index: int) -> None:
    """Make PyTorch's context on a device that of this thread, for the driver's calls."""
    call(cuda.cuCtxSetCurrent(_context(index)))


@cache
def _context(index: int) -> Any:
    return call(cuda.cuDevicePrimaryCtxRetain(call(cuda.cuDeviceGet(index))))


def _offsets(function: Any) -> tuple[int, ...]:
    call(cuda.cuFuncLoad(function))  # where modules load lazily, its attributes are not there yet
    offsets: list[int] = []
    while True:
        try:
            offset, _ = call(cuda.cuFuncGetParamInfo(function, len(offsets)))
        except DriverError:  # an index past the last parameter is an invalid value
            return tuple(offsets)
        offsets.append(int(offset))


def _block(data: bytes, relocations: Sequence[Relocation], frame: _Frame) -> int:
    """Address of a copy of the bytes, 16-byte aligned, whose relocations the frame fills in."""
    buffer = (ctypes.c_char * (len(data) + 16))()
    start = (ctypes.addressof(buffer) + 15) // 16 * 16
    ctypes.memmove(start, data, len(data))
    frame.keep.append(buffer)
    for r in relocations:
        frame.add(ctypes.c_uint64.from_address(start + r.at), r.region, r.offset)
    return start


_Make = Callable[[], torch.Tensor]


def _makers(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> tuple[_Make, _Make]:
    """Two ways to a dense tensor: the quick one, while the device is the current one, and
    PyTorch's, which fills it where algorithms have to be deterministic."""
    usual = partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
    if _empty_strided is None:
        return usual, usual
    return partial(_empty_strided, tuple(shape), tuple(strides), dtype), usual


def _new_output(
    template: LaunchTemplate, region: int, device: torch.device
) -> tuple[_Make, _Make, bool]:
    """Two ways to make the tensor of an output (`_makers`), at the place in its allocation where
    the template has it; and whether its address is that of the allocation."""
    output = next(o for o in template.outputs if o.place.region == region)
    dtype, nbytes = TORCH_DTYPES[output.dtype], template.region_bytes(region)
    shape, strides = output.shape, output.strides
    if output.place.offset == 0 and nbytes == output.nbytes:
        return (*_makers(shape, strides, dtype, device), True)
    start, rest = divmod(output.place.offset, dtype.itemsize)
    if rest:
        raise LoadError("an output does not lie at a multiple of its elements' size")
    size = -(-nbytes // dtype.itemsize)

    def make() -> torch.Tensor:
        flat = torch.empty(size, dtype=dtype, device=device)
        return flat.as_strided(shape, strides, start)

    return make, make, False


def _launch_error(code: int) -> Exception:
    if code == _OUT_OF_MEMORY:
        return DeviceFullError("the GPU has no memory left for a launch: use smaller batches")
    error = DriverError(code, "CUDA error")
    return LaunchError(error.words, certain=error.by_launch)

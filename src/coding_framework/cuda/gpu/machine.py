"""One GPU inside one process: memory, a loaded module, launches. No protocol, no lock, no judge.

`process.py` serves it; tests and benchmarks may use it directly. The process sees one GPU
(CUDA_VISIBLE_DEVICES) and runs no candidate host code: only the cubin that our compiler made.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coding_framework.cuda.build.kernel_names import readable
from coding_framework.cuda.build.ptx_summary import module_variables, ptx_of, variables_bytes
from coding_framework.cuda.device.server import DeviceBroken
from coding_framework.cuda.gpu.driver import NOT_FOUND, NOT_READY, DriverError, call, cuda, packed
from coding_framework.cuda.gpu.helpers import our_cubin
from coding_framework.cuda.gpu.memory import Arena
from coding_framework.cuda.gpu.output import CapturedOutput
from coding_framework.cuda.gpu.settings import GpuSettings
from coding_framework.cuda.host.properties import DeviceProperties
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Copy,
    KernelInfo,
    Launch,
    LaunchReport,
    ModuleInfo,
    SymbolInfo,
)
from coding_framework.errors import DeviceError, DeviceFullError
from coding_framework.types import Status

_DYNAMIC_SHARED = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SPIN_S = 200e-6
_NAP_S = 50e-6


class GpuMachine:
    """A GPU with at most one loaded module. Everything runs on one stream, in order."""

    def __init__(self, settings: GpuSettings | None = None) -> None:
        self.settings = settings or GpuSettings()
        call(cuda.cuInit(0))
        self.device = call(cuda.cuDeviceGet(0))
        context = call(cuda.cuDevicePrimaryCtxRetain(self.device))
        call(cuda.cuCtxSetCurrent(context))
        limit = cuda.CUlimit.CU_LIMIT_PRINTF_FIFO_SIZE
        call(cuda.cuCtxSetLimit(limit, self.settings.printf_bytes))
        self.stream = call(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        self.name = call(cuda.cuDeviceGetName(128, self.device)).split(b"\0")[0].decode()
        self.l2_bytes = self._attribute("L2_CACHE_SIZE")
        self.multiprocessors = self._attribute("MULTIPROCESSOR_COUNT")
        self.shared_optin = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        major = self._attribute("COMPUTE_CAPABILITY_MAJOR")
        self.architecture = 10 * major + self._attribute("COMPUTE_CAPABILITY_MINOR")
        self.output = CapturedOutput()
        self._helpers = _module(our_cubin("helpers", self.architecture).read_bytes())
        self._sink = int(call(cuda.cuMemAlloc(256)))
        self.memory = Arena(self, self.settings.memory_limit_bytes)
        self._module: Any = None
        self._functions: dict[str, Any] = {}
        self._kernels: dict[str, KernelInfo] = {}
        self._dynamic: dict[str, int] = {}
        """Dynamic shared memory that a kernel has been allowed so far."""

    # --- loading --------------------------------------------------------------------------------

    def load(self, build: Path) -> ModuleInfo:
        """Load `device.cubin` of a build folder. Raises CandidateFault(load_error)."""
        try:
            image, text = (build / "device.cubin").read_bytes(), ptx_of(build)
        except OSError as e:
            raise DeviceError(f"{e.filename} cannot be read: {e.strerror}") from e
        try:
            self._module = _module(image)
        except DriverError as e:
            raise CandidateFault(
                Status.LOAD_ERROR, f"the driver cannot load the device code: {e}"
            ) from e
        except DeviceFullError:
            self._require_allowed(variables_bytes(text), "the variables of the module")
            raise
        self._functions = _functions(self._module)
        self._kernels = {name: _kernel_info(name, f) for name, f in self._functions.items()}
        symbols = self._find_symbols(text)
        self.memory.symbols = {s.address: s.nbytes for s in symbols.values()}
        return ModuleInfo(self._kernels, symbols)

    @property
    def variables(self) -> tuple[tuple[int, int], ...]:
        """(address, nbytes) of the module's variables: where a kernel can keep what it likes."""
        return tuple(self.memory.symbols.items())

    def _find_symbols(self, ptx: str) -> dict[str, SymbolInfo]:
        found = {}
        for space, name in module_variables(ptx):
            try:
                address, nbytes = call(cuda.cuModuleGetGlobal(self._module, name.encode()))
            except DriverError as e:
                if e.code == NOT_FOUND:  # ptxas left it out: no kernel uses it
                    continue
                raise
            if nbytes:
                found[name] = SymbolInfo(
                    name, int(address), int(nbytes), "const" if space == "const" else "global"
                )
        return found

    # --- launching ------------------------------------------------------------------------------

    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport:
        """Run one launch to its end. `checks` has no meaning on hardware."""
        try:
            self.enqueue(launch)
            self.wait(readable(launch.kernel))
        except DriverError as e:
            if not e.by_launch:
                raise
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"invalid launch of {readable(launch.kernel)} with grid {launch.grid}, block "
                f"{launch.block} and {launch.shared_bytes} bytes of dynamic shared memory: "
                f"{e.words}",
            ) from e
        except DeviceFullError:
            self._require_allowed(self._stacks_bytes(launch.kernel), "the stacks of its threads")
            raise
        return LaunchReport(launch.kernel, output=self.output.take())

    def _require_allowed(self, nbytes: int, what: str) -> None:
        """Raises CandidateFault where the candidate alone asks for more than it may have; where it
        does not, the GPU is full of other work."""
        if nbytes > self.settings.memory_limit_bytes:
            raise CandidateFault(
                Status.MEMORY_LIMIT,
                f"{what} need {nbytes} bytes of device memory; the limit is "
                f"{self.settings.memory_limit_bytes}",
            )

    def _stacks_bytes(self, kernel: str) -> int:
        """Local memory of as many threads as the GPU holds at once: the driver takes it whole."""
        which = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        a_thread = int(call(cuda.cuFuncGetAttribute(which, self._functions[kernel])))
        threads = self._attribute("MAX_THREADS_PER_MULTIPROCESSOR")
        return a_thread * threads * self.multiprocessors

    def enqueue(self, launch: Launch) -> None:
        """Put a launch on the stream. Raises CandidateFault, or DriverError of the launch."""
        function, info = self._functions.get(launch.kernel), self._kernels.get(launch.kernel)
        if function is None or info is None:
            raise CandidateFault(
                Status.LOAD_ERROR, f"the module has no kernel {readable(launch.kernel)!r}"
            )
        params, keep = _parameters(info, launch.params)
        if launch.shared_bytes > self._dynamic.get(launch.kernel, 0):
            call(cuda.cuFuncSetAttribute(function, _DYNAMIC_SHARED, launch.shared_bytes))
            self._dynamic[launch.kernel] = launch.shared_bytes
        if launch.cooperative:
            call(
                cuda.cuLaunchCooperativeKernel(
                    function, *launch.grid, *launch.block, launch.shared_bytes, self.stream, params
                )
            )
        else:
            call(
                cuda.cuLaunchKernel(
                    function, *launch.grid, *launch.block, launch.shared_bytes, self.stream,
                    params, 0,
                )
            )  # fmt: skip
        del keep  # the driver has copied the parameters when the call returns

    def wait(self, what: str = "", spin_s: float = _SPIN_S) -> None:
        """Wait for the stream. Raises DeviceBroken: with a fault where the candidate's kernel
        failed or did not end, without where the GPU did.

        what: the candidate's kernel; "": work of ours. spin_s: before it is looked for with pauses.
        """
        started = time.monotonic()
        while not self._is_idle(what):
            waited = time.monotonic() - started
            if waited > self.settings.launch_wall_s:
                words = f"{what or 'work of the device'} did not end within {waited:.0f} s"
                raise DeviceBroken(words, CandidateFault(Status.TIMEOUT, words) if what else None)
            if waited > spin_s:
                time.sleep(_NAP_S)

    def _is_idle(self, what: str) -> bool:
        try:
            call(cuda.cuStreamQuery(self.stream))
            call(cuda.cuStreamSynchronize(self.stream))  # hands over what was printed
        except DriverError as e:
            if e.code == NOT_READY:
                return False
            if e.by_kernel and what:
                said = self.output.take()
                fault = CandidateFault(Status.RUNTIME_ERROR, f"{what}: {e.words}", output=said)
                raise DeviceBroken(e.words, fault) from e
            raise DeviceBroken(f"the GPU failed: {e}") from e
        return True

    # --- between candidates ---------------------------------------------------------------------

    def reset(self) -> None:
        """Ready for another candidate: nothing of this one can be read, or runs."""
        if self._module is not None:
            call(cuda.cuModuleUnload(self._module))
        self._module, self._functions, self._kernels, self._dynamic = None, {}, {}, {}
        self.memory.reset()
        words = self.shared_optin // 4
        self.helper("scrub_shared", 2 * self.multiprocessors, 1024, 4 * words, words, self._sink)
        self.wait()
        self.output.take()

    def helper(
        self, name: str, blocks: int, threads: int, shared_bytes: int, *arguments: Any
    ) -> None:
        """Put one of our own kernels on the stream (`helpers.cu`)."""
        function = call(cuda.cuModuleGetFunction(self._helpers, name.encode()))
        if shared_bytes:
            call(cuda.cuFuncSetAttribute(function, _DYNAMIC_SHARED, shared_bytes))
        params, keep = packed(_HELPER_LAYOUTS[name], arguments)
        call(
            cuda.cuLaunchKernel(
                function, blocks, 1, 1, threads, 1, 1, shared_bytes, self.stream, params, 0
            )
        )
        del keep

    def enqueue_copy(self, copy: Copy) -> None:
        """Put a copy of at least one byte on the stream."""
        to, of, nbytes = copy.destination, copy.source, copy.nbytes
        if copy.layout is None:
            call(cuda.cuMemcpyDtoDAsync(to, of, nbytes, self.stream))
            return
        itemsize, shape, strides = copy.layout
        count, none = nbytes // itemsize, (0,) * (_COPIED_AXES - len(shape))
        blocks = min(-(-count // 256), 16 * self.multiprocessors)
        axes = (*shape, *none, *strides, *none)
        self.helper("gather", blocks, 256, 0, to, of, count, itemsize, len(shape), axes)

    def read_all(self, address: int, nbytes: int) -> None:
        """Have the GPU read so much memory: afterwards the L2 holds nothing else."""
        self.helper("read_all", 8 * self.multiprocessors, 256, 0, address, nbytes // 16, self._sink)

    def properties(self) -> DeviceProperties:
        """What candidates' host code is told of this GPU."""
        return DeviceProperties(
            name=self.name,
            major=self.architecture // 10,
            minor=self.architecture % 10,
            multiprocessors=self.multiprocessors,
            global_memory=int(call(cuda.cuDeviceTotalMem(self.device))),
            l2_bytes=self.l2_bytes,
            shared_per_multiprocessor=self._attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            shared_per_block_optin=self.shared_optin,
            registers_per_multiprocessor=self._attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            threads_per_multiprocessor=self._attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
            blocks_per_multiprocessor=self._attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
            clock_khz=self._attribute("CLOCK_RATE"),
            memory_clock_khz=self._attribute("MEMORY_CLOCK_RATE"),
            memory_bus_bits=self._attribute("GLOBAL_MEMORY_BUS_WIDTH"),
        )

    def _attribute(self, name: str) -> int:
        attribute = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(cuda.cuDeviceGetAttribute(attribute, self.device)))


_COPIED_AXES = 16


def _axes(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_uint64]:
    """Extents, then strides."""
    return (ctypes.c_uint64 * (2 * _COPIED_AXES))(*numbers)


_HELPER_LAYOUTS: dict[str, tuple[Any, ...]] = {
    "gather": (*(ctypes.c_uint64,) * 3, *(ctypes.c_uint32,) * 2, _axes),
    "read_all": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64),
    "scrub_shared": (ctypes.c_uint32, ctypes.c_uint64),
    "nothing": (),
}


def _module(image: bytes) -> Any:
    return call(cuda.cuModuleLoadData(image))


def _functions(module: Any) -> dict[str, Any]:
    """The module's kernels by name."""
    count = int(call(cuda.cuModuleGetFunctionCount(module)))
    functions = call(cuda.cuModuleEnumerateFunctions(count, module)) if count else []
    return {call(cuda.cuFuncGetName(f)).decode(): f for f in functions}


def _kernel_info(name: str, function: Any) -> KernelInfo:
    call(cuda.cuFuncLoad(function))  # where modules load lazily, its attributes are not there yet
    offsets: list[int] = []
    sizes: list[int] = []
    with suppress(DriverError):  # an index past the last parameter is an invalid value
        while True:
            offset, size = call(cuda.cuFuncGetParamInfo(function, len(offsets)))
            offsets.append(int(offset))
            sizes.append(int(size))

    def attribute(which: str) -> int:
        return int(
            call(
                cuda.cuFuncGetAttribute(
                    getattr(cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{which}"), function
                )
            )
        )

    return KernelInfo(
        name=name,
        param_offsets=tuple(offsets),
        param_sizes=tuple(sizes),
        static_shared_bytes=attribute("SHARED_SIZE_BYTES"),
        max_threads=attribute("MAX_THREADS_PER_BLOCK"),
        registers=attribute("NUM_REGS"),
    )


def _parameters(info: KernelInfo, block: bytes) -> tuple[int, object]:
    """Pointers to the parameters inside a copy of the block, as cuLaunchKernel takes them; and
    what has to live until it returns."""
    expected = max(
        (o + s for o, s in zip(info.param_offsets, info.param_sizes, strict=True)), default=0
    )
    if len(block) < expected:
        raise CandidateFault(
            Status.RUNTIME_ERROR,
            f"{len(block)} bytes of arguments for {readable(info.name)}, where {expected} are "
            "expected",
        )
    if not info.param_offsets:
        return 0, None
    buffer = (ctypes.c_char * (len(block) + 16))()
    start = (ctypes.addressof(buffer) + 15) // 16 * 16
    ctypes.memmove(start, block, len(block))
    pointers = (ctypes.c_void_p * len(info.param_offsets))(*(start + o for o in info.param_offsets))
    return ctypes.addressof(pointers), (buffer, pointers)

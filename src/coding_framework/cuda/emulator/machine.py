"""The emulator inside one process: memory, a loaded module, launches. No protocol, no process.

`device.py` runs it in a process of its own; tests and benchmarks may use it directly.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from coding_framework.cuda.build.kernel_names import readable
from coding_framework.cuda.build.ptx_summary import ptx_of
from coding_framework.cuda.emulator import timing_model
from coding_framework.cuda.emulator.assembler import (
    BASE_CODE,
    BASE_GLOBAL,
    Assembler,
    FunctionCode,
    Kernel,
    parameter_layout,
)
from coding_framework.cuda.emulator.counters import EXECUTED, counters, executed
from coding_framework.cuda.emulator.faults import CHECK_KINDS, noted, raise_for
from coding_framework.cuda.emulator.library import Alloc, Check, Func, LaunchRecord, MemCount, load
from coding_framework.cuda.emulator.lowering import lower
from coding_framework.cuda.emulator.memory import ARENA_BYTES, DeviceMemory
from coding_framework.cuda.emulator.parser import parse
from coding_framework.cuda.emulator.program import Function, Module, Variable, unsupported
from coding_framework.cuda.emulator.settings import BLOCK_ORDERS, EmulatorSettings
from coding_framework.cuda.emulator.stream_watch import StreamWatch
from coding_framework.cuda.emulator.timing_model import Occupancy
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Fault,
    KernelInfo,
    Launch,
    LaunchReport,
    ModuleInfo,
    SymbolInfo,
)
from coding_framework.errors import DeviceError
from coding_framework.types import Status

ASSUMED_REGISTERS = 32
"""Registers a thread for the occupancy of a kernel that ptxas said nothing about."""
MAX_OUTPUT_BYTES = 4096
"""Of printf, a launch; the rest is counted."""
_WORKSPACE_BYTES = 4096
_WORKSPACE_REGISTER = "%envreg"
_READ_RACES = frozenset({"global_memory_race", "unordered_read"})
_MOST_WARPS, _MOST_WATCHED_BYTES = 1 << 22, 8 << 20
"""Of a launch, for what its races come to."""
_OPPOSITE = bytes(range(255, -1, -1))
"""Of each byte that with all bits turned."""
_WARP_BYTES = 12 << 10
"""A warp's stacks in the interpreter (rt.h: Warp)."""


def prepare(build: Path) -> None:
    """Read the device code of a build, so that machines of processes forked from here need not.
    Raises as `Machine.load` and `Machine.kernel`."""
    text = _text_of(build)
    module = _parsed(text)
    placed = any(_is_placed(variable) for variable in module.variables.values())
    for function in module.functions.values():
        if function.is_entry:
            _static_shared(text, function.name)
            if not placed:
                _assembled(text, function.name)


def _text_of(build: Path) -> str:
    try:
        return ptx_of(build)
    except OSError as e:
        raise DeviceError(f"{build / 'device.ptx'} cannot be read: {e.strerror}") from e


@lru_cache(maxsize=1)
def _parsed(text: str) -> Module:
    return parse(text)


@lru_cache(maxsize=16)
def _assembled(text: str, name: str) -> Kernel:
    """A kernel of a module that has no variables, whose addresses would be in its code."""
    return Assembler(_parsed(text), {}, lower).assemble(name)


@lru_cache(maxsize=64)
def _static_shared(text: str, name: str) -> int:
    """Bytes of shared memory that a kernel declares. Kept, as it takes a look at every instruction:
    a forked process would copy the memory of each."""
    module = _parsed(text)
    return Assembler(module, {}, lower).place_shared(module.functions[name])


def _is_placed(variable: Variable) -> bool:
    """Whether it has an address of its own in global memory."""
    return variable.space in ("global", "const") and not variable.external


class Machine:
    """One emulated GPU with at most one loaded module."""

    def __init__(self, settings: EmulatorSettings | None = None) -> None:
        self.settings = settings or EmulatorSettings()
        self.gpu = timing_model.gpu(self.settings.gpu)
        self.library = load()
        self.memory = DeviceMemory(self.settings.memory_limit_bytes, self.settings.address_seed)
        self.module: Module | None = None
        self._text = ""
        self.addresses: dict[str, int] = {}
        self.kernels: dict[str, Kernel] = {}
        self.registers: dict[str, int] = {}
        self._workspace = 0
        self._tick = 0
        self._launches = 0
        self._spared: dict[str, set[int]] = {}
        self._watch: StreamWatch | None = None
        self.counts = self.settings.count
        """Whether launches count sectors and conflicts, and are given a time."""

    # --- loading --------------------------------------------------------------------------------

    def load(self, build: Path) -> ModuleInfo:
        """Load `device.ptx` of a build folder; registers come from its `result.json`, if any."""
        self.registers = _registers(build / "result.json")
        return self.load_text(_text_of(build))

    def load_text(self, text: str) -> ModuleInfo:
        """Load PTX. Raises CandidateFault(unsupported | memory_limit | load_error)."""
        module = _parsed(text)
        self._text, self.module, self.kernels, self.addresses = text, module, {}, {}
        symbols: dict[str, SymbolInfo] = {}
        for variable in module.variables.values():
            if not _is_placed(variable):
                continue
            constant = variable.space == "const"
            address = self.memory.alloc(variable.nbytes, read_only=constant, zeroed=True)
            self.addresses[variable.name] = address
            symbols[variable.name] = SymbolInfo(
                variable.name, address, variable.nbytes, "const" if constant else "global"
            )
        for variable in module.variables.values():
            if variable.name in self.addresses and variable.initial:
                self._initialise(variable)
        if _WORKSPACE_REGISTER in text:  # now, so that two devices give a plan the same addresses
            self._workspace = self.memory.alloc(_WORKSPACE_BYTES)
        kernels = {f.name: self._info(f) for f in module.functions.values() if f.is_entry}
        return ModuleInfo(kernels, symbols)

    def _initialise(self, variable: Variable) -> None:
        assert self.module is not None
        size = variable.element_bytes
        data = bytearray(size * len(variable.initial))
        numbers = {name: n for n, name in enumerate(self.module.functions)}
        for position, value in enumerate(variable.initial):
            bits = value.bits
            if value.symbol is not None:
                if value.symbol in numbers:
                    bits += BASE_CODE + 16 * numbers[value.symbol]
                elif value.symbol in self.addresses:
                    bits += self.addresses[value.symbol]
                else:
                    raise unsupported(f"an initial value with the address of {value.symbol!r}")
            bits &= (1 << 8 * size) - 1
            data[position * size : (position + 1) * size] = bits.to_bytes(size, "little")
        self.memory.upload(self.addresses[variable.name], bytes(data))

    def _info(self, function: Function) -> KernelInfo:
        assert self.module is not None
        offsets, _ = parameter_layout(function.parameters)
        return KernelInfo(
            name=function.name,
            param_offsets=tuple(offsets.values()),
            param_sizes=tuple(v.nbytes for v in function.parameters),
            static_shared_bytes=_static_shared(self._text, function.name),
            max_threads=function.max_threads,
            registers=self.registers.get(function.name, 0),
        )

    def _assembler(self, module: Module) -> Assembler:
        return Assembler(module, self.addresses, lower)

    def kernel(self, name: str) -> Kernel:
        """The assembled kernel. Raises CandidateFault(unsupported), naming what is missing."""
        made = self.kernels.get(name)
        if made is None:
            if self.module is None:
                raise DeviceError("a launch before a module was loaded")
            function = self.module.functions.get(name)
            if function is None or not function.is_entry:
                raise CandidateFault(
                    Status.LOAD_ERROR, f"the module has no kernel {readable(name)!r}"
                )
            if self.addresses:
                made = self._assembler(self.module).assemble(name)
            else:
                made = _assembled(self._text, name)
            self.kernels[name] = made
        return made

    # --- launching ------------------------------------------------------------------------------

    def launch(self, launch: Launch, *, checks: bool = False) -> LaunchReport:
        """Run one launch to its end. Raises CandidateFault for what the kernel did."""
        kernel = self.kernel(launch.kernel)
        self._validate(launch, kernel)
        call = _Call(self, kernel, launch, checks)
        before = call.watched_bytes() if checks and self._watch is None else None
        self._run(call)
        self._note_stores(launch.kernel, call.table)
        try:
            raise_for(call.record, kernel, self.memory, launch.grid, launch.block)
        except CandidateFault as fault:
            fault.output = call.printed()
            raise
        if before is not None and call.races_by_reading and self._are_dropped(call, before):
            call.forget_races()
        return self._report(call)

    def _run(self, call: _Call) -> None:
        if self.library.emulator_run(ctypes.addressof(call.record)) != 0:
            raise DeviceError("the emulator found no memory for its workers")
        self.memory.take_back(call.table, checked=bool(call.record.checks))
        self._pass_time(int(call.record.tick))

    def _are_dropped(self, call: _Call, before: dict[int, bytes]) -> bool:
        """Whether nothing comes of the reads that race: where they give what was there before the
        launch, what is there after it, or the opposite of each bit, memory ends as it did."""
        after = call.watched_bytes()
        if after is None or any(a.stored and not a.watched for a in call.table):
            return False
        opposite = {at: data.translate(_OPPOSITE) for at, data in after.items()}
        for instead in (before, opposite, after):
            self._restore(before)
            again = _Call(self, call.kernel, call.launch, checks=True)
            again.read_instead(instead, call)
            self._run(again)
            ended = {at: self.memory.download(at, len(data)) for at, data in after.items()}
            if again.record.fault.kind or ended != after:
                self._restore(after)
                return False
        return True

    def _restore(self, contents: dict[int, bytes]) -> None:
        for address, data in contents.items():
            ctypes.memmove(self.memory.pointer(address), data, len(data))

    def _note_stores(self, kernel: str, table: ctypes.Array[Alloc]) -> None:
        """Memory that a kernel never stores to needs no watch for races of its threads. What no
        earlier launch of it could have stored to is watched."""
        stored = {a.lo for a in table if a.stored}
        spared = self._spared.setdefault(kernel, {a.lo for a in table})
        spared -= stored

    def spared_by(self, kernel: str) -> set[int]:
        """Allocations that were there in the kernel's first launch, and that none of its launches
        has stored to; none where its reads count as well."""
        return set() if self._watch is not None else self._spared.get(kernel, set())

    def noise(self) -> int:
        """What no program may rely on: other at each launch, and the same in a repeated verdict."""
        self._launches += 1
        text = f"{self.settings.block_order} {self._launches}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    @property
    def tick(self) -> int:
        """The time of races.c, over all launches."""
        return self._tick

    def _pass_time(self, now: int) -> None:
        if self._watch is not None:
            self._watch.note(self._tick, now)
        self._tick = now

    def count_events(self, wanted: bool) -> None:
        """Whether launches count more than instructions from here on, where the settings allow."""
        self.counts = wanted and self.settings.count

    # --- streams: see `WatchesStreams` ------------------------------------------------------------

    @property
    def watch(self) -> StreamWatch | None:
        return self._watch

    def watch_streams(self) -> None:
        self._watch = StreamWatch()

    def expect(self, number: int, unordered: Sequence[int]) -> None:
        assert self._watch is not None
        self._watch.expect(number, unordered)

    def touch(self, address: int, nbytes: int, writes: bool) -> int | None:
        watch, record = self._watch, self.memory.find(address)
        assert watch is not None
        if record is None or nbytes == 0:
            return None
        stamp = ctypes.c_uint64()
        now = self._tick + 1
        found = self.library.race_range(
            ctypes.byref(record), address, nbytes, now, int(writes), watch.words(), watch.count,
            ctypes.byref(stamp),
        )  # fmt: skip
        self._pass_time(now)
        return watch.operation_at(stamp.value >> 32) if found else None

    def end_watch(self) -> None:
        self._watch = None

    def _validate(self, launch: Launch, kernel: Kernel) -> None:
        assert self.module is not None
        function = self.module.functions[launch.kernel]
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        name = readable(launch.kernel)
        bad = ""
        if min(*launch.grid, *launch.block) < 1:
            bad = "an extent below 1"
        elif launch.block[0] > 1024 or launch.block[1] > 1024 or launch.block[2] > 64:
            bad = "an extent over (1024, 1024, 64)"
        elif threads > function.max_threads:
            bad = f"{threads} threads a block, where the kernel allows {function.max_threads}"
        elif launch.grid[0] > 2**31 - 1 or launch.grid[1] > 65535 or launch.grid[2] > 65535:
            bad = "a grid over (2147483647, 65535, 65535)"
        elif kernel.shared_bytes + launch.shared_bytes > self.gpu.shared_bytes_per_block:
            bad = (
                f"{kernel.shared_bytes + launch.shared_bytes} bytes of shared memory, where a "
                f"block may have {self.gpu.shared_bytes_per_block}"
            )
        elif launch.shared_bytes < 0:
            bad = "negative shared memory"
        elif len(launch.params) < kernel.param_bytes:
            bad = (
                f"{len(launch.params)} bytes of arguments, where {kernel.param_bytes} are expected"
            )
        elif (needed := self._registers_of(launch.kernel, threads)) > self.gpu.registers:
            bad = f"{needed} registers a block, where a multiprocessor has {self.gpu.registers}"
        elif launch.cooperative and (blocks := math.prod(launch.grid)) > self.room(launch, kernel):
            bad = (
                f"{blocks} blocks of a cooperative launch, of which the GPU holds "
                f"{self.room(launch, kernel)} at once"
            )
        if bad:
            raise CandidateFault(
                Status.RUNTIME_ERROR,
                f"invalid launch of {name} with grid {launch.grid} and block {launch.block}: {bad}",
            )

    def occupancy(self, launch: Launch, shared_bytes: int) -> Occupancy:
        """What one multiprocessor holds of a launch."""
        registers = self.registers.get(launch.kernel) or ASSUMED_REGISTERS
        return timing_model.occupancy(self.gpu, math.prod(launch.block), registers, shared_bytes)

    def room(self, launch: Launch, kernel: Kernel) -> int:
        """Blocks that the whole GPU holds at once: more cannot wait for each other."""
        held = self.occupancy(launch, kernel.shared_bytes + launch.shared_bytes)
        return held.blocks * self.gpu.multiprocessors

    def _registers_of(self, kernel: str, threads: int) -> int:
        """Registers that a block takes, as they are given out: by warps in units of 256."""
        a_warp = (self.registers.get(kernel, 0) * 32 + 255) // 256 * 256
        return a_warp * ((threads + 31) // 32)

    def _report(self, call: _Call) -> LaunchReport:
        launch, record = call.launch, call.record
        warps = list(call.block_warps)
        found: dict[str, float] = {EXECUTED: executed(call.kernel, warps)}
        time_ms = None
        if self.counts:
            found = counters(call.kernel, record, warps, list(call.block_lanes), list(call.mem))
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            registers = self.registers.get(launch.kernel) or ASSUMED_REGISTERS
            held = self.occupancy(launch, int(record.shared_bytes))
            terms = timing_model.model_ms(self.gpu, found, launch.grid, launch.block, held)
            found["launch__grid_size"] = launch.grid[0] * launch.grid[1] * launch.grid[2]
            found["launch__block_size"] = threads
            found["launch__registers_per_thread"] = registers
            found["launch__shared_mem_per_block"] = int(record.shared_bytes)
            found["launch__occupancy_limit_blocks"] = held.blocks
            found["sm__maximum_warps_per_active_cycle_pct"] = 100.0 * held.fraction
            found["gpu__time_duration.sum"] = terms["total"] * 1e6
            time_ms = terms["total"]
        faults = noted(call.kernel, call.noted_checks(), launch.grid, launch.block)
        if self._watch is not None:
            faults = tuple(self._with_operation(fault) for fault in faults)
        stored = tuple(allocation.lo for allocation in call.table if allocation.stored)
        return LaunchReport(launch.kernel, found, time_ms, faults, call.printed(), stored)

    def _with_operation(self, fault: Fault) -> Fault:
        """With the number of the earlier operation that it races with, for its time."""
        if self._watch is None or fault.other is None:
            return fault
        return replace(fault, other=self._watch.operation_at(fault.other))

    def workspace(self) -> int:
        """Zeroed memory for grid-wide barriers of cooperative launches; 0 where there are none."""
        if self._workspace:
            self.memory.fill(self._workspace, 0, _WORKSPACE_BYTES)
        return self._workspace


def _registers(result: Path) -> dict[str, int]:
    """Registers a thread by kernel, as the compiler stored what ptxas said; {} where it did not."""
    try:
        kernels = json.loads(result.read_text())["kernels"]
        return {str(kernel["name"]): int(kernel["registers"]) for kernel in kernels}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


class _Call:
    """One launch as the library sees it; holds every buffer that it points to."""

    def __init__(self, machine: Machine, kernel: Kernel, launch: Launch, checks: bool) -> None:
        self.kernel, self.launch = kernel, launch
        settings, memory = machine.settings, machine.memory
        workspace = machine.workspace() if launch.cooperative else 0
        blocks, instructions = len(kernel.blocks), len(kernel.instructions)
        self.block_warps = (ctypes.c_uint64 * blocks)()
        self.block_lanes = (ctypes.c_uint64 * blocks)()
        self.mem = (MemCount * instructions)()
        self.checks = (Check * (instructions * len(CHECK_KINDS)))() if checks else (Check * 0)()
        self.check_buffer = self.checks if checks else (Check * (instructions * len(CHECK_KINDS)))()
        self.table = memory.table(checked=checks, spared=machine.spared_by(launch.kernel))
        self._keep: list[object] = []
        self._memory = memory
        watch = machine.watch
        since = None if watch is None else watch.since
        self.unordered = StreamWatch().words() if watch is None else watch.words()
        self.output = (ctypes.c_char * MAX_OUTPUT_BYTES)()
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        warps = (threads + 31) // 32
        everywhere = warps * math.prod(launch.grid)
        known = checks and everywhere <= _MOST_WARPS
        self.readers = (ctypes.c_uint8 * everywhere)() if known else None
        state = (kernel.register_bytes + 32 * kernel.local_bytes + _WARP_BYTES) * warps
        state += (kernel.shared_bytes + launch.shared_bytes) * (17 if checks else 1)
        room = min(machine.room(launch, kernel), settings.blocks_at_once)
        resident = max(1, min(room, (1 << 30) // max(state, 1)))
        self.record = LaunchRecord(
            code=self._pointer(kernel.code),
            funcs=self._functions(kernel.functions),
            nfuncs=len(kernel.functions),
            entry_func=next(f.number for f in kernel.functions if f.name == kernel.name),
            ntid=launch.block,
            nctaid=launch.grid,
            params=self._pointer(launch.params),
            nparams=len(launch.params),
            shared_bytes=kernel.shared_bytes + launch.shared_bytes,
            dynamic_shared=launch.shared_bytes,
            local_bytes=kernel.local_bytes,
            register_bytes=kernel.register_bytes,
            cooperative=int(launch.cooperative),
            order=BLOCK_ORDERS.index(settings.block_order),
            workspace=workspace,
            arena=memory.base,
            shadow=memory.shadow,
            touched=memory.touched,
            allocs=ctypes.addressof(self.table),
            nallocs=len(memory.records),
            arena_bytes=ARENA_BYTES,
            count=int(machine.counts),
            checks=int(checks),
            nblocks_code=blocks,
            ninstructions=instructions,
            l1_sectors=4096,
            budget=settings.instruction_budget,
            cpu_ns=int(settings.cpu_limit_s * 1e9),
            threads=1 if checks else settings.threads,
            max_resident=resident,
            block_warps=ctypes.addressof(self.block_warps),
            block_lanes=ctypes.addressof(self.block_lanes),
            mem=ctypes.addressof(self.mem),
            check=ctypes.addressof(self.check_buffer),
            output=ctypes.addressof(self.output),
            output_size=MAX_OUTPUT_BYTES,
            first_tick=machine.tick,
            race_since=machine.tick + 1 if since is None else since,
            noise=machine.noise(),
            unordered=ctypes.addressof(self.unordered),
            nunordered=0 if watch is None else watch.count,
            readers=None if self.readers is None else ctypes.addressof(self.readers),
        )

    def watched_bytes(self) -> dict[int, bytes] | None:
        """What lies, by its address, where races are looked for; None where that is too much to
        keep."""
        watched = [(a.lo, a.size) for a in self.table if a.watched]
        if sum(size for _, size in watched) > _MOST_WATCHED_BYTES:
            return None
        return {at: ctypes.string_at(self._memory.pointer(at), size) for at, size in watched}

    @property
    def races_by_reading(self) -> bool:
        """Whether there are races, and in each of them one side is a read by a warp that is
        known."""
        return not self.record.conflicts and any(
            CHECK_KINDS[kind] in _READ_RACES for _, kind, _ in self.noted_checks()
        )

    def forget_races(self) -> None:
        """They are none."""
        for _, kind, check in self.noted_checks():
            if CHECK_KINDS[kind] in _READ_RACES:
                check.count = 0

    def read_instead(self, contents: dict[int, bytes], first: _Call) -> None:
        """Let the warps whose reads raced in `first` find `contents` where these lie."""
        low = min(contents)
        room = (ctypes.c_char * (max(at + len(data) for at, data in contents.items()) - low))()
        for at, data in contents.items():
            ctypes.memmove(ctypes.addressof(room) + at - low, data, len(data))
        assert first.readers is not None
        self._keep += [room, first.readers]
        self.record.readers = ctypes.addressof(first.readers)
        self.record.instead = ctypes.addressof(room) - (low - BASE_GLOBAL)

    def _pointer(self, data: bytes) -> int:
        """Address of a 64-byte aligned copy of `data`."""
        buffer = (ctypes.c_char * (len(data) + 128))()
        self._keep.append(buffer)
        at = (ctypes.addressof(buffer) + 63) // 64 * 64
        ctypes.memmove(at, data, len(data))
        return at

    def _functions(self, functions: list[FunctionCode]) -> int:
        table = (Func * len(functions))()
        for entry, code in zip(table, functions, strict=True):
            if code.frame is None:
                continue
            entry.entry = code.entry
            entry.frame_bytes = code.frame.nbytes
            entry.const_at = code.frame.constants_at
            constants = code.frame.constant_data
            entry.const_bytes = len(constants)
            entry.consts = self._pointer(constants)
            entry.local_bytes = code.local_bytes
            words = (ctypes.c_uint32 * len(code.params))(*code.params)
            self._keep.append(words)
            entry.params = ctypes.addressof(words)
        self._keep.append(table)
        return ctypes.addressof(table)

    def printed(self) -> str:
        """The text of printf; where it was cut, it says so."""
        count = int(self.record.output_bytes)
        text = self.output.raw[: min(count, MAX_OUTPUT_BYTES)].decode("utf-8", "replace")
        over = count - MAX_OUTPUT_BYTES
        return f"{text}\n[{over} bytes more were printed]\n" if over > 0 else text

    def noted_checks(self) -> list[tuple[int, int, Check]]:
        kinds = len(CHECK_KINDS)
        words = memoryview(self.check_buffer).cast("B").cast("Q")
        counts = words[:: ctypes.sizeof(Check) // 8].tolist()  # Check.count comes first
        return [
            (position // kinds, position % kinds, self.check_buffer[position])
            for position, count in enumerate(counts)
            if count
        ]

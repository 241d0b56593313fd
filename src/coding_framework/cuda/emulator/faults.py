"""Sentences about what a launch did wrong, and the verdict each is."""

from __future__ import annotations

from coding_framework.cuda.build.kernel_names import readable
from coding_framework.cuda.emulator.assembler import Kernel
from coding_framework.cuda.emulator.library import Check, LaunchRecord
from coding_framework.cuda.emulator.memory import DeviceMemory
from coding_framework.cuda.plan.launch_plan import CandidateFault, Dim3, Fault
from coding_framework.types import Status

(
    _NONE, _BOUNDS, _MISALIGNED, _TRAP, _BUDGET, _DEADLOCK, _STACK, _DIVERGENCE, _ASSERT,
    _CPU_TIME, _CALL, _MEMORY,
) = range(12)  # fmt: skip
_SPACES = ("global", "shared", "local", "constant", "parameter", "generic")
CHECK_KINDS = (
    "uninitialized_read", "uninitialized_shared_read", "shared_memory_race", "warp_race",
    "barrier_divergence", "global_memory_race", "stream_race", "equal_writes", "unordered_read",
)  # fmt: skip
_WITHOUT_ADDRESS = frozenset({"barrier_divergence"})


def _triple(index: int, shape: Dim3) -> str:
    x, y = index % shape[0], index // shape[0] % shape[1]
    return f"({x},{y},{index // shape[0] // shape[1]})"


def _where(kernel: Kernel, pc: int) -> tuple[str, int | None, str]:
    """In words, the line, and the opcode of a program counter."""
    function, instruction = kernel.instructions[min(max(pc, 0), len(kernel.instructions) - 1)]
    name = readable(kernel.name)
    inside = "" if function == kernel.name else f" (in {readable(function)})"
    line = f", line {instruction.line}" if instruction.line else ""
    return f"kernel {name}{inside}{line}", instruction.line, instruction.opcode


def raise_for(
    record: LaunchRecord, kernel: Kernel, memory: DeviceMemory, grid: Dim3, block: Dim3
) -> None:
    """Raise the CandidateFault for the fault in `record`, if there is one."""
    fault = record.fault
    if fault.kind == _NONE:
        return
    where, _, opcode = _where(kernel, fault.pc)
    who = f"thread {_triple(fault.thread, block)} of block {_triple(fault.block, grid)}"
    space = _SPACES[fault.space] if fault.space < len(_SPACES) else "memory"
    way = {"ld": "read", "st": "write", "cp": "copy", "call": "read"}.get(
        opcode.split(".")[0], "atomic access"
    )
    access = f"{space} {way} of {fault.size} bytes at {fault.address:#x} by {who} in {where}"
    runtime = Status.RUNTIME_ERROR
    if fault.kind == _BOUNDS:
        detail = _bounds(fault.address, fault.space, record, memory)
        raise CandidateFault(runtime, f"illegal {access}: {detail}")
    if fault.kind == _MISALIGNED:
        raise CandidateFault(
            runtime, f"misaligned {access}: the address is not a multiple of {fault.size}"
        )
    if fault.kind == _MEMORY:
        raise CandidateFault(
            Status.MEMORY_LIMIT, f"no memory for the registers and shared memory of {where}"
        )
    sentences = {
        _TRAP: (runtime, f"trap executed by {who} in {where}"),
        _ASSERT: (
            runtime,
            f"the assertion `{memory.text(fault.address)}` failed for {who} in {where}",
        ),
        _BUDGET: (
            Status.TIMEOUT,
            f"{where} did not end within {record.executed} instructions of its warps",
        ),
        _CPU_TIME: (
            Status.TIMEOUT,
            f"{where} did not end within {record.cpu_ns / 1e9:.0f} s of processor time",
        ),
        _DEADLOCK: (
            Status.TIMEOUT,
            f"deadlock: all threads that are left of block {_triple(fault.block, grid)} wait at "
            f"barriers, in {where}",
        ),
        _STACK: (runtime, f"stack overflow by {who} in {where}: the recursion is too deep"),
        _DIVERGENCE: (
            Status.UNSUPPORTED,
            f"the emulator does not support divergence this deep, in {where}",
        ),
        _CALL: (runtime, f"illegal operand {fault.address:#x} of {opcode} by {who} in {where}"),
    }
    status, sentence = sentences.get(
        fault.kind, (runtime, f"fault {fault.kind} by {who} in {where}")
    )
    raise CandidateFault(status, sentence)


def _bounds(address: int, space: int, record: LaunchRecord, memory: DeviceMemory) -> str:
    if space == _SPACES.index("shared"):
        return f"the block has {record.shared_bytes} bytes of shared memory"
    if space == _SPACES.index("local"):
        return f"a thread has {record.local_bytes} bytes of local memory"
    if space == _SPACES.index("parameter"):
        return f"the kernel has {record.nparams} bytes of parameters"
    if address < 1 << 16:
        return "a null pointer"
    if not DeviceMemory.may_hold(address):
        return "no device memory lies there: a pointer of the host's, or a value that is no pointer"
    nearest = memory.find(address)
    if nearest is None:
        return "it is below every allocation"
    block = f"the {nearest.size}-byte allocation at {nearest.lo:#x}"
    if nearest.freed:
        return f"{block} was freed"
    over = address - (nearest.lo + nearest.size)
    if nearest.read_only:
        return f"{block} is constant memory"
    if over < 0:
        return f"it crosses the end of {block}"
    following = next((a for a in memory.records if a.lo > address and not a.freed), None)
    if following is not None and following.lo - address < over:
        return (
            f"{following.lo - address} bytes before the {following.size}-byte allocation at "
            f"{following.lo:#x}"
        )
    return f"{over} bytes past the end of {block}"


def _first(kernel: Kernel, check: Check, grid: Dim3, block: Dim3) -> str:
    """The access that was there before: opcode, line and where, from its stamp (races.c)."""
    warp, pc = check.stamp >> 27 & 31, check.stamp & 0x7FFFFF
    _, line, opcode = _where(kernel, pc)
    at = f" of line {line}" if line else ""
    return (
        f"{opcode}{at} by a thread from {_triple(32 * warp, block)} on in block "
        f"{_triple(check.other_block, grid)}"
    )


def noted(
    kernel: Kernel, checks: list[tuple[int, int, Check]], grid: Dim3, block: Dim3
) -> tuple[Fault, ...]:
    """What the run-time checks found: (program counter, kind, record) each."""
    found = []
    for pc, kind, check in checks:
        where, line, opcode = _where(kernel, pc)
        thread = f"block {_triple(check.block, grid)} thread {_triple(check.thread, block)}"
        other = _triple(check.other, block)
        first = _first(kernel, check, grid, block) if check.stamp else ""
        times = f"{check.count} time{'s' if check.count != 1 else ''}"
        near = " of the same warp" if check.thread // 32 == check.other // 32 else ""
        message = {
            "uninitialized_read": f"{opcode} reads global memory that nothing has written, {times}",
            "uninitialized_shared_read": f"{opcode} reads shared memory that nothing has written, "
            f"{times}",
            "shared_memory_race": f"{opcode} races with thread {other}{near} on shared memory "
            f"without a {'__syncwarp' if near else '__syncthreads'}() between them, {times}",
            "warp_race": f"{opcode} races with thread {other} of the same warp on shared memory "
            f"without a __syncwarp() between them, {times}",
            "barrier_divergence": f"{opcode} is reached by only some threads of a warp, {times}",
            "global_memory_race": f"{opcode} on global memory races with {first}: no barrier, "
            f"and no fence with an atomic or volatile access, orders them, {times}",
            "stream_race": f"{opcode} on global memory races with earlier work on another stream, "
            f"{times}",
            "equal_writes": f"{opcode} writes to global memory what {first} writes there too, and "
            f"nothing orders them: right while the values are equal, {times}",
            "unordered_read": f"{opcode} meets {first} on global memory, one of them atomic, and "
            f"nothing orders them, {times}",
        }[CHECK_KINDS[kind]]  # fmt: skip
        found.append(
            Fault(
                kind=CHECK_KINDS[kind],
                kernel=kernel.name,
                line=line,
                thread=thread,
                address=None if CHECK_KINDS[kind] in _WITHOUT_ADDRESS else check.address,
                count=check.count,
                message=f"{where}: {message}; first by {thread}",
                other=check.stamp >> 32 if CHECK_KINDS[kind] == "stream_race" else None,
            )
        )
    return tuple(found)

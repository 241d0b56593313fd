"""Counters of one launch under Nsight Compute's metric names.

They count PTX instructions, not SASS: memory, divergence and barrier metrics agree with the
hardware's meaning, instruction counts come close to it. `smsp__thread_inst_executed` counts the
active threads of each instruction, predicated off or not, as Nsight does. Names of ours begin with
`emulator__`: what the time model uses beside them. Issue slots, estimated; the largest shares that
one warp and one block have of a launch's instructions and of its loads from global memory; atomics
on the one address that had most of them; products of tensor cores, in those of half precision that
take as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from coding_framework.cuda.emulator.assembler import Kernel
from coding_framework.cuda.emulator.library import LaunchRecord, MemCount
from coding_framework.cuda.timing.profiler import CLASSES, FLOPS

_FLOPS = {"add": "fadd", "sub": "fadd", "mul": "fmul", "fma": "ffma", "mad": "ffma"}
_HEADS = {
    **dict.fromkeys(("ld", "st", "ldu", "atom", "red", "cp", "ldmatrix", "stmatrix"), "memory"),
    **dict.fromkeys(("bra", "brx", "call", "ret", "exit", "bar", "barrier", "trap"), "control"),
    **dict.fromkeys(("shfl", "vote", "match", "redux", "activemask"),
                    "inter_thread_communication"),
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "shf", "lop3", "prmt", "bfe", "bfi",
                     "bfind", "popc", "clz", "brev"), "bit"),
    **dict.fromkeys(("mov", "cvta", "membar", "fence"), "misc"),
}  # fmt: skip


@lru_cache(maxsize=4096)
def instruction_class(opcode: str) -> str:
    """One of the classes of smsp__sass_thread_inst_executed_op_CLASS_pred_on."""
    parts = opcode.split(".")
    if parts[0] == "cvt":
        return "conversion"
    if parts[0] in _HEADS:
        return _HEADS[parts[0]]
    if parts[-1] in ("f32", "f32x2"):
        return "fp32"
    if parts[-1] == "f64":
        return "fp64"
    return "fp16" if parts[-1] in ("f16", "bf16", "f16x2", "bf16x2") else "integer"


_TRANSCENDENTAL = {"ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt", "div"}


@lru_cache(maxsize=4096)
def issue_slots(opcode: str) -> int:
    """Machine instructions that ptxas makes of one PTX instruction, about.

    From disassembly: correctly rounded division and roots are subroutines, integers have no
    divider, and 64-bit integers take two instructions each.
    """
    parts = opcode.split(".")
    head, kind = parts[0], parts[-1]
    if head in ("div", "rem"):
        if kind in ("s64", "u64"):
            return 70
        if kind == "f64":
            return 24
        return 4 if "approx" in parts or "full" in parts else 12 if kind == "f32" else 20
    if head in ("sqrt", "rcp", "rsqrt") and "approx" not in parts:
        return 20 if kind == "f64" else 9
    if kind in ("s64", "u64", "b64") and head not in ("ld", "st", "mov", "cvta", "atom", "red"):
        return 4 if head in ("mul", "mad") else 2
    return 1


_TENSOR_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_TENSOR_COST = {"f64": 16.0, "tf32": 2.0, "s8": 0.5, "u8": 0.5}
"""Time of a product against one of half precision, by the type of its factors."""


@lru_cache(maxsize=4096)
def tensor_products(opcode: str) -> float:
    """Multiplications of one warp-wide mma, in those of half precision that take as long; 0 for any
    other instruction."""
    shape = _TENSOR_SHAPE.search(opcode)
    if shape is None or not opcode.startswith(("mma.", "wmma.mma.")):
        return 0.0
    parts = opcode.split(".")
    cost = next((cost for kind, cost in _TENSOR_COST.items() if kind in parts), 1.0)
    return cost * int(shape[1]) * int(shape[2]) * int(shape[3])


@lru_cache(maxsize=4096)
def _flop_kind(opcode: str) -> str:
    parts = opcode.split(".")
    kind = _FLOPS.get(parts[0], "")
    if not kind or parts[-1] not in ("f32", "f64", "f16", "f16x2"):
        return ""
    return {"f32": "", "f64": "d", "f16": "h", "f16x2": "h"}[parts[-1]] + (
        kind if parts[-1] == "f32" else kind[1:]
    )


EXECUTED = "smsp__inst_executed.sum"


def executed(kernel: Kernel, warps: Sequence[int]) -> int:
    """Instructions of all warps; warps: how many entered each basic block."""
    return sum(w * len(b.instructions) for b, w in zip(kernel.blocks, warps, strict=True) if w)


def counters(
    kernel: Kernel, record: LaunchRecord, warps: list[int], lanes: list[int], mem: list[MemCount]
) -> dict[str, float]:
    """All metrics of one launch; `mem` by program counter, the others by basic block."""
    out: dict[str, float] = {}
    issued = threads = 0
    by_class = dict.fromkeys(CLASSES, 0)
    by_flop: dict[str, int] = {}
    slots = special = tensor = 0
    products = 0.0
    for block, w, n in zip(kernel.blocks, warps, lanes, strict=True):
        if not w:
            continue
        issued += w * len(block.instructions)
        threads += n * len(block.instructions)
        for pc in block.instructions:
            opcode = kernel.instructions[pc][1].opcode
            by_class[instruction_class(opcode)] += n
            slots += w * issue_slots(opcode)
            head = opcode.split(".", 1)[0]
            special += w if head in _TRANSCENDENTAL or head == "cvt" else 0
            tensor += w if head == "mma" or opcode.startswith("wmma.mma") else 0
            products += w * tensor_products(opcode)
            flop = _flop_kind(opcode)
            if flop:
                by_flop[flop] = by_flop.get(flop, 0) + n
    out[EXECUTED] = issued
    out["smsp__thread_inst_executed.sum"] = threads
    out["smsp__thread_inst_executed_per_inst_executed.ratio"] = threads / issued if issued else 0.0
    for name, count in by_class.items():
        out[f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"] = count
    for name in FLOPS:
        out[f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"] = by_flop.get(name, 0)
    out["smsp__inst_executed_pipe_xu.sum"] = special
    out["smsp__inst_executed_pipe_tensor.sum"] = tensor
    out["emulator__issue_slots.sum"] = slots
    out["smsp__sass_branch_targets.sum"] = record.branches
    out["smsp__sass_branch_targets_threads_divergent.sum"] = record.divergent
    out["smsp__inst_executed_op_barrier.sum"] = record.barriers
    _memory(out, kernel, mem)
    ran = max(record.executed, 1)
    out["emulator__longest_warp.ratio"] = record.longest_warp / ran
    out["emulator__longest_block.ratio"] = record.longest_block / ran
    reads = max(out["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"], 1)
    out["emulator__most_loads_warp.ratio"] = record.most_loads_warp / reads
    out["emulator__most_loads_block.ratio"] = record.most_loads_block / reads
    out["emulator__same_address_atomics.sum"] = record.hottest_atomics
    out["emulator__tensor_products.sum"] = products
    out["dram__bytes_read.sum"] = record.dram_read * 32
    out["dram__bytes_write.sum"] = record.dram_write * 32
    out["dram__bytes.sum"] = (record.dram_read + record.dram_write) * 32
    return out


def _memory(out: dict[str, float], kernel: Kernel, mem: list[MemCount]) -> None:
    """Sectors, requests, bytes, hit rates and bank conflicts by space and direction."""
    names = ("requests", "sectors", "lanes", "wavefronts", "ideal", "l1_misses", "bytes", "tags")
    zero = dict.fromkeys(names, 0)
    sums = {key: dict(zero) for key in (
        "global_op_ld", "global_op_st", "global_op_atom", "local_op_ld", "local_op_st",
        "shared_op_ld", "shared_op_st", "shared_op_atom",
    )}  # fmt: skip
    for pc, count in enumerate(mem):
        if not count.requests:
            continue
        parts = kernel.instructions[pc][1].parts
        way = {"ld": "ld", "ldu": "ld", "st": "st", "cp": "ld"}.get(parts[0], "atom")
        space = "local" if "local" in parts else "global"
        if parts[0] != "cp" and any(p in ("shared", "shared::cta") for p in parts):
            space = "shared"
        if parts[0] in ("ldmatrix", "stmatrix"):
            space, way = "shared", "ld" if parts[0] == "ldmatrix" else "st"
        into = sums[f"{space}_op_{way}"]
        for name in names:
            into[name] += getattr(count, name)
    clashes = 0
    for key, got in sums.items():
        out[f"smsp__inst_executed_op_{key.replace('_op', '')}.sum"] = got["requests"]
        if key.startswith("shared"):
            conflicts = got["wavefronts"] - got["ideal"]
            clashes += conflicts
            out[f"l1tex__data_bank_conflicts_pipe_lsu_mem_{key}.sum"] = conflicts
            out[f"l1tex__data_pipe_lsu_wavefronts_mem_{key}.sum"] = got["wavefronts"]
            out[f"smsp__sass_data_bytes_mem_{key}.sum"] = got["bytes"]
            continue
        out[f"l1tex__t_requests_pipe_lsu_mem_{key}.sum"] = got["requests"]
        out[f"l1tex__t_sectors_pipe_lsu_mem_{key}.sum"] = got["sectors"]
        out[f"l1tex__t_output_wavefronts_pipe_lsu_mem_{key}.sum"] = got["tags"]
        out[f"smsp__sass_data_bytes_mem_{key}.sum"] = got["bytes"]
        ratio = got["sectors"] / got["requests"] if got["requests"] else 0.0
        out[f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_{key}.ratio"] = ratio
    out["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] = clashes
    out["l1tex__data_bank_conflicts_pipe_lsu.sum"] = clashes
    loads = sums["global_op_ld"]
    hits = loads["sectors"] - loads["l1_misses"]
    out["l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"] = hits
    sectors = loads["sectors"]
    out["l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"] = (
        100.0 * hits / sectors if sectors else 0.0
    )
    out["lts__t_sectors_op_read.sum"] = loads["l1_misses"]
    out["lts__t_sectors_op_write.sum"] = sums["global_op_st"]["sectors"]
    out["lts__t_sectors_op_atom.sum"] = sums["global_op_atom"]["sectors"]

"""Modelled time of a launch on a named GPU: a roofline with occupancy and latency, from counters.

Not a simulator. Each resource (issue, arithmetic pipes, L1, shared memory, L2, DRAM) gives a lower
bound, and so does what one warp waits for: its start, its loads, its own chain and, where barriers
hold it to the pace of its block, the block's work follow each other and are summed. The bounds are
joined by a 4-norm, so that the largest rules and the others still count, and a launch costs a fixed
overhead. Numbers are always labelled `modelled`: only their order is used. All figures are data
(gpus.yaml); those of a GPU that was measured are fitted (docs/measurements/emulator.md says how
near the model is and where it fails).

Not modelled: clocks under load, tails inside a wave, blocks of one multiprocessor that take each
other's lines from L1, launches of one plan that overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from coding_framework.cuda.plan.launch_plan import Dim3
from coding_framework.errors import UsageError

_SHORT = {"h200": "NVIDIA H200", "h100": "NVIDIA H100", "a100": "NVIDIA A100",
          "rtx 4090": "NVIDIA GeForce RTX 4090", "rtx4090": "NVIDIA GeForce RTX 4090"}  # fmt: skip
_L1_LATENCY_NS = 20.0
_SUBROUTINE_SLOTS = 12.0
"""Issue slots that `counters.issue_slots` gives a correctly rounded division beyond its one
instruction, about: so the estimated slots tell how many there were."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One entry of gpus.yaml."""

    name: str
    multiprocessors: int
    clock_ghz: float
    dram_gbps: float
    host_gbps: float
    """Of the link to the host, one way."""
    l2_bytes: int
    max_warps: int
    max_blocks: int
    registers: int
    shared_bytes: int
    shared_bytes_per_block: int
    lanes: Mapping[str, float]
    model: Mapping[str, float]
    compute_capability: str
    calibration: Mapping[str, Any] | None = None
    """What was fitted, to what and when; None: published figures and assumptions."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps that one multiprocessor holds, and what limits them."""

    blocks: int
    warps: int
    fraction: float
    limit: str


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs by name."""
    text = resources.files(__package__).joinpath("gpus.yaml").read_text()
    data: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {name: Gpu(name=name, **figures) for name, figures in data.items()}


def gpu(name: str) -> Gpu:
    """The GPU called `name`, in full or short ("h200"). Raises UsageError with the choices."""
    found = gpus().get(_SHORT.get(name.lower(), name))
    if found is None:
        raise UsageError(f"unknown GPU {name!r}: choose one of {', '.join(gpus())}")
    return found


def transfer_ms(device: Gpu, moved_bytes: int, *, by_host: bool = False) -> float:
    """One copy or fill: it costs a launch, and the bytes that it moves in DRAM, or over the link to
    the host."""
    gbps = device.host_gbps if by_host else device.dram_gbps
    return float(device.model["launch_us"]) / 1e3 + moved_bytes / gbps / 1e6


def occupancy(device: Gpu, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Residency by the rules of the CUDA occupancy calculator: registers are given out by warps in
    units of 256, shared memory in units of 128 bytes after 1 KiB for the system."""
    warps = (threads + 31) // 32
    limits = {"warps": device.max_warps // max(warps, 1), "blocks": device.max_blocks}
    if registers:
        a_warp = (registers * 32 + 255) // 256 * 256
        limits["registers"] = device.registers // a_warp // max(warps, 1)
    a_block = (shared_bytes + 1024 + 127) // 128 * 128
    limits["shared_memory"] = device.shared_bytes // a_block
    limit = min(limits, key=lambda k: limits[k])
    blocks = max(limits[limit], 1)
    return Occupancy(blocks, blocks * warps, min(blocks * warps / device.max_warps, 1.0), limit)


def model_ms(
    device: Gpu, counters: Mapping[str, float], grid: Dim3, block: Dim3, held: Occupancy
) -> dict[str, float]:
    """Milliseconds of each term and "total"."""
    blocks = grid[0] * grid[1] * grid[2]
    warps = blocks * ((block[0] * block[1] * block[2] + 31) // 32)
    busy = min(blocks, device.multiprocessors)
    waves = -(-blocks // device.multiprocessors)
    # the fullest multiprocessor sets the pace of everything that is done inside one: blocks that
    # have nothing to do take no work off those that have
    share, load_share = (
        max(waves / blocks, counters.get(f"emulator__{most}_block.ratio", 0.0))
        for most in ("longest", "most_loads")
    )
    resident = min(held.warps * device.multiprocessors, warps, held.warps * busy)
    evicted = _evicted(device, counters, resident / max(warps, 1))
    terms = _inside(device, counters, share)
    terms["l1"] *= load_share / share
    inside = tuple(terms)
    terms.update(_outside(device, counters, evicted))
    # the grid's blocks are handed out at about one a cycle (empty kernels of many blocks)
    terms["blocks"] = blocks / (device.clock_ghz * 1e6)
    waiting = _latency(device, counters, warps, resident, evicted)
    if counters.get("smsp__inst_executed_op_barrier.sum", 0.0):
        # between barriers a block's warps do the same at a time: only other blocks hide that
        waiting["barriers"] = max(terms[name] for name in inside) / min(held.blocks, waves)
    in_a_warp = sum(waiting.values())
    work = (in_a_warp**4 + sum(t**4 for t in terms.values())) ** 0.25
    terms.update(waiting)
    terms["launch"] = device.model["launch_us"] / 1e3
    terms["total"] = work + terms["launch"]
    return terms


def _inside(device: Gpu, counters: Mapping[str, float], share: float) -> dict[str, float]:
    """Issue slots, pipes, L1 and shared memory: cycles of the fullest multiprocessor."""

    def ops(kind: str) -> float:
        return counters.get(f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum", 0.0)

    slots = counters.get("emulator__issue_slots.sum", 0.0)
    cycles = {"issue": slots * device.model["instructions_per_slot"] / 4}
    for kind in ("fp32", "fp64", "fp16", "integer", "bit", "inter_thread_communication"):
        cycles[kind] = ops(kind) / device.lanes[kind]
    special = counters.get("smsp__inst_executed_pipe_xu.sum", 0.0)
    cycles["special"] = special * 32 / device.lanes["special"]
    cycles["tensor"] = counters.get("emulator__tensor_products.sum", 0.0) / device.lanes["tensor"]
    sectors = tags = wavefronts = 0.0
    for way in ("ld", "st", "atom"):
        key = f"l1tex__t_sectors_pipe_lsu_mem_global_op_{way}.sum"
        sectors += counters.get(key, 0.0)
        tags += counters.get(key.replace("sectors", "output_wavefronts"), 0.0)
        wavefronts += counters.get(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{way}.sum", 0.0)
        if way != "atom":
            local = f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum"
            sectors += counters.get(local, 0.0)
    # a tag lookup for each 128-byte line of a request; data move 128 bytes a cycle
    cycles["l1"] = max(sectors / 4, tags)
    cycles["shared"] = wavefronts
    return {name: c * share / (device.clock_ghz * 1e6) for name, c in cycles.items()}


def _evicted(device: Gpu, counters: Mapping[str, float], resident: float) -> float:
    """Sectors that L1 asks for again after L2 has lost them.

    Between two passes over its data a block sees all that the resident blocks read and write go
    through L2, and a cache that replaces the oldest keeps nothing of a loop that is larger than it.
    resident: their share of the launch. Sectors that all blocks share are taken for their own.
    """
    footprint = counters.get("dram__bytes.sum", 0.0) * min(resident, 1.0)
    lost = footprint / (device.l2_bytes * device.model["l2_share"]) - 1.0
    first = counters.get("dram__bytes_read.sum", 0.0) / 32
    again = max(counters.get("lts__t_sectors_op_read.sum", 0.0) - first, 0.0)
    return again * min(max(lost, 0.0), 1.0)


def _outside(device: Gpu, counters: Mapping[str, float], evicted: float) -> dict[str, float]:
    """L2 and DRAM, shared by all multiprocessors."""
    model = device.model
    written = counters.get("lts__t_sectors_op_write.sum", 0.0)
    # at least so many: bytes of one address count for each lane that writes them
    stored = counters.get("smsp__sass_data_bytes_mem_global_op_st.sum", 0.0)
    partial = max(written - stored / 32, 0.0)
    sectors = counters.get("lts__t_sectors_op_read.sum", 0.0) + written
    sectors += partial * (model["partial_write_sectors"] - 1.0)
    atomics = counters.get("lts__t_sectors_op_atom.sum", 0.0)
    moved = counters.get("dram__bytes.sum", 0.0) + 32 * evicted
    return {
        "l2": (sectors + 4 * atomics) * 32 / model["l2_gbps"] / 1e6,
        "dram": moved / (device.dram_gbps * model["dram_efficiency"]) / 1e6,
        "atomics": counters.get("emulator__same_address_atomics.sum", 0.0)
        * model["atomic_ns"]
        / 1e6,
    }


def _latency(
    device: Gpu, counters: Mapping[str, float], warps: int, resident: int, evicted: float
) -> dict[str, float]:
    """Time that too few resident warps leave open: none hides what another does alone. A warp
    starts, waits for its loads and goes through its own chain, one after another."""
    model, cycle_ms = device.model, 1e-6 / device.clock_ghz
    alone, alone_loads = (
        max(1.0 / max(resident, 1), counters.get(f"emulator__{most}_warp.ratio", 0.0))
        for most in ("longest", "most_loads")
    )
    issued = counters.get("emulator__issue_slots.sum", 0.0)
    cycles = issued * model["dependent_issue_cycles"] / model["independent_instructions"]
    lanes = counters.get(
        "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum", 0.0
    )
    exchanges = lanes / 32 + counters.get("smsp__inst_executed_op_barrier.sum", 0.0)
    shared = counters.get("smsp__inst_executed_op_shared_ld.sum", 0.0)
    exchanges += shared / model["requests_in_flight"]
    cycles += exchanges * model["exchange_cycles"]
    return {
        "memory_latency": _waits_ms(device, counters, warps, alone_loads, evicted),
        "dependency": cycles * alone * cycle_ms,
        "start": max(warps / max(resident, 1), 1.0) * model["warp_start_ns"] / 1e6,
    }


def _waits_ms(
    device: Gpu, counters: Mapping[str, float], warps: int, alone: float, evicted: float
) -> float:
    """What the warp with most loads waits for them. alone: its share of them."""
    model = device.model
    reads = counters.get("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 0.0)
    if not reads:
        return 0.0
    # Loads before the first use wait together: as many as the compiler unrolls, but one where a
    # store that may alias, or the subroutine of a division or root, stands between them
    slots = counters.get("emulator__issue_slots.sum", 0.0)
    subroutines = (slots - counters.get("smsp__inst_executed.sum", 0.0)) / _SUBROUTINE_SLOTS
    stores = counters.get("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", 0.0)
    single = min(max(stores, subroutines), reads)
    waits = single + (reads - single) / model["requests_in_flight"]
    waits = max(waits, min(warps, reads))
    # A wait ends with the slowest of its loads. Lanes that miss mostly miss together: a load misses
    # as often as one of its sectors does
    sectors = max(counters.get("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 0.0), 1.0)
    beyond_l1 = counters.get("lts__t_sectors_op_read.sum", 0.0) / sectors
    beyond_l2 = (counters.get("dram__bytes_read.sum", 0.0) / 32 + evicted) / sectors
    missed, far = (1.0 - (1.0 - min(p, 1.0)) ** (reads / waits) for p in (beyond_l1, beyond_l2))
    near_ns, far_ns = model["l2_latency_ns"], model["dram_latency_ns"]
    wait_ns = _L1_LATENCY_NS + missed * near_ns + far * (far_ns - near_ns)
    tags = counters.get("l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum", 0.0)
    wait_ns += 2.0 * (tags / reads - 1.0) / device.clock_ghz  # a cycle or two a line
    return float(max(waits * alone, 1.0) * wait_ns / 1e6)

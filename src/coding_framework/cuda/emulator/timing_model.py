"""Modelled time of a launch on a named GPU: a roofline with occupancy and latency, from counters.

Not a simulator. Each resource (issue, arithmetic pipes, L1, shared memory, L2, DRAM, latency) gives
a lower bound; they are joined by a 4-norm, so that the largest rules and the others still count,
and a launch costs a fixed overhead. Numbers are always labelled `modelled`: only their order is
used. All figures are data (gpus.yaml), so that measurements on a GPU can set them.

Not modelled: clocks under load, tails inside a wave, L2 misses by capacity in a launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from coding_framework.cuda.plan import Dim3
from coding_framework.errors import UsageError

_SHORT = {"h200": "NVIDIA H200", "h100": "NVIDIA H100", "a100": "NVIDIA A100",
          "rtx 4090": "NVIDIA GeForce RTX 4090", "rtx4090": "NVIDIA GeForce RTX 4090"}  # fmt: skip


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
    terms = _inside(device, counters, share)
    terms["l1"] *= load_share / share
    terms.update(_outside(device, counters))
    terms.update(_latency(device, counters, blocks, resident))
    work = sum(t**4 for t in terms.values()) ** 0.25
    terms["launch"] = device.model["launch_us"] / 1e3
    terms["total"] = work + terms["launch"]
    return terms


def _inside(device: Gpu, counters: Mapping[str, float], share: float) -> dict[str, float]:
    """Issue slots, pipes, L1 and shared memory: cycles of the fullest multiprocessor."""

    def ops(kind: str) -> float:
        return counters.get(f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum", 0.0)

    cycles = {"issue": counters.get("emulator__issue_slots.sum", 0.0) / 4}
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


def _outside(device: Gpu, counters: Mapping[str, float]) -> dict[str, float]:
    """L2 and DRAM, shared by all multiprocessors."""
    sectors = sum(counters.get(f"lts__t_sectors_op_{w}.sum", 0.0) for w in ("read", "write"))
    atomics = counters.get("lts__t_sectors_op_atom.sum", 0.0)
    model = device.model
    return {
        "l2": (sectors + 4 * atomics) * 32 / model["l2_gbps"] / 1e6,
        "dram": counters.get("dram__bytes.sum", 0.0)
        / (device.dram_gbps * model["dram_efficiency"])
        / 1e6,
        "atomics": counters.get("emulator__same_address_atomics.sum", 0.0)
        * model["atomic_ns"]
        / 1e6,
    }


def _latency(
    device: Gpu, counters: Mapping[str, float], blocks: int, resident: int
) -> dict[str, float]:
    """Time that too few resident warps leave open: none hides what another does alone."""
    alone, alone_loads = (
        max(1.0 / max(resident, 1), counters.get(f"emulator__{most}_warp.ratio", 0.0))
        for most in ("longest", "most_loads")
    )
    reads = counters.get("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 0.0)
    tags = counters.get("l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum", 0.0)
    memory = 0.0
    if reads:
        # a request waits for the farthest of its sectors, and for a cycle or two a line
        missed = min(counters.get("lts__t_sectors_op_read.sum", 0.0) / reads, 1.0)
        far = min(counters.get("dram__bytes_read.sum", 0.0) / 32 / reads, 1.0)
        near_ns, far_ns = device.model["l2_latency_ns"], device.model["dram_latency_ns"]
        wait_ns = 20.0 + missed * near_ns + far * (far_ns - near_ns)
        wait_ns += 2.0 * (tags / reads - 1.0) / device.clock_ghz
        rounds = reads * alone_loads / device.model["requests_in_flight"]
        memory = max(rounds * wait_ns, wait_ns) / 1e6
    issued = counters.get("emulator__issue_slots.sum", 0.0)
    cycles = device.model["dependent_issue_cycles"] / device.model["independent_instructions"]
    chain = issued * cycles * alone
    return {
        "memory_latency": memory,
        "dependency": chain / (device.clock_ghz * 1e6),
        # the grid's blocks are handed out at about one a cycle (empty kernels of many blocks)
        "blocks": blocks / (device.clock_ghz * 1e6),
    }

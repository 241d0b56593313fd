"""What hardware counters say of a kernel: the questions that findings, feedback and reward share.

Names are Nsight Compute's, whoever filled them: the emulator or a GPU. All figures are made from
sums, so that they hold over many launches.
"""

from __future__ import annotations

from collections.abc import Mapping

Counters = Mapping[str, float]

SECTOR_BYTES = 32
LOADS_AND_STORES = ("ld", "st")
_TAKEN, _IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
"""What ncu counts by the addresses of each access to shared memory: the emulator's conflicts are
exactly their difference on 74 kernels (benchmarks/results/emulator_vs_gpu.h200.json)."""
_CONFLICTS_A_REQUEST = 0.25
"""Of the data stage's own counter fewer are no access pattern's: for kernels without any, a GPU
counts up to 0.12 a request, turns lost to other traffic."""


def sectors_per_request(counters: Counters, op: str) -> float | None:
    """32-byte sectors that a warp's access to global memory touches, on average; op: ld or st."""
    requests = counters.get(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum", 0.0)
    sectors = counters.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum", 0.0)
    return sectors / requests if requests else None


def used_share(counters: Counters, *ops: str) -> float | None:
    """Bytes that threads asked for over bytes of the sectors moved for them, at most 1."""
    asked = moved = 0.0
    for op in ops:
        moved += SECTOR_BYTES * counters.get(
            f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum", 0.0
        )
        asked += counters.get(f"smsp__sass_data_bytes_mem_global_op_{op}.sum", 0.0)
    return min(asked / moved, 1.0) if moved else None


def bank_conflicts(counters: Counters) -> float:
    """Turns of shared memory that access patterns lose; 0 where none does, or nothing is known."""
    if _IDEAL in counters:
        return max(0.0, counters.get(_TAKEN, 0.0) - counters[_IDEAL])
    found = 0.0
    for op in LOADS_AND_STORES:
        counted = counters.get(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum", 0.0)
        requests = counters.get(f"smsp__inst_executed_op_shared_{op}.sum", 0.0)
        if counted >= _CONFLICTS_A_REQUEST * requests:
            found += counted
    return found


def free_of_conflicts(counters: Counters) -> float | None:
    """Share of the turns of shared memory that no bank conflict took."""
    turns = sum(
        counters.get(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum", 0.0)
        for op in LOADS_AND_STORES
    )
    return max(0.0, 1.0 - bank_conflicts(counters) / turns) if turns else None


def measured_occupancy_pct(counters: Counters) -> float | None:
    """Warps that were resident, of those that an SM holds; None where nothing measured it."""
    return counters.get("sm__warps_active.avg.pct_of_peak_sustained_active")


def possible_occupancy_pct(counters: Counters) -> float | None:
    """What registers, shared memory and blocks leave room for."""
    return counters.get("sm__maximum_warps_per_active_cycle_pct")


def occupancy_pct(counters: Counters) -> float | None:
    """The measured one, else the possible one."""
    measured = measured_occupancy_pct(counters)
    return possible_occupancy_pct(counters) if measured is None else measured


def active_lanes(counters: Counters) -> float | None:
    """Threads of a warp that are active, on average over its instructions."""
    issued = counters.get("smsp__inst_executed.sum", 0.0)
    return counters.get("smsp__thread_inst_executed.sum", 0.0) / issued if issued else None


def divergent_share(counters: Counters) -> float:
    """Branches at which threads of a warp part, of all; 0 where nothing is known."""
    branches = counters.get("smsp__sass_branch_targets.sum", 0.0)
    divergent = counters.get("smsp__sass_branch_targets_threads_divergent.sum", 0.0)
    return divergent / branches if branches else 0.0

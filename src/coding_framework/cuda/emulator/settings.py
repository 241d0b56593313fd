"""How an emulated device runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

DEFAULT_GPU = "NVIDIA H200"
BlockOrder = Literal["forward", "reverse", "interleaved"]
BLOCK_ORDERS: tuple[BlockOrder, ...] = get_args(BlockOrder)


@dataclass(frozen=True, slots=True)
class EmulatorSettings:
    """Limits and choices of one device; all of them are deterministic but `cpu_limit_s`."""

    gpu: str = DEFAULT_GPU
    """Name in gpus.yaml: sets limits of a block and the modelled time."""
    memory_limit_bytes: int = 8 << 30
    """Device memory of the candidate; more ends as `memory_limit`."""
    instruction_budget: int = 2_000_000_000
    """Warp instructions of one launch; then it ends as `timeout`. The same on every machine."""
    cpu_limit_s: float = 60.0
    """Processor time of one launch on one worker: the net below the budget."""
    threads: int = 1
    """Worker threads over blocks. With 1, results never depend on the schedule."""
    block_order: BlockOrder = "forward"
    """The order in which blocks start. "interleaved" is "reverse" with a stop before each store to
    global memory, until other warps and blocks have come as far: lost updates show."""
    blocks_at_once: int = 4096
    """The most that run at a time, where the GPU holds as many; with 1 none may wait for a later
    one."""
    address_seed: int | None = None
    """Where allocations lie; None: one after the other."""
    count: bool = True
    """Whether launches may count sectors and conflicts beside instructions, and get a time."""

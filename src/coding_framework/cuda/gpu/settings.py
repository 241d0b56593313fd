"""How a GPU device runs."""

from __future__ import annotations

from dataclasses import dataclass

LAUNCH_WALL_S = 10.0


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Limits of one candidate on a GPU."""

    memory_limit_bytes: int = 32 << 30
    """Device memory of the candidate, inputs included; more ends as `memory_limit`."""
    launch_wall_s: float = LAUNCH_WALL_S
    """Wall time of one launch, or of one timed call; then it ends as `timeout`, and the process
    with it. A GPU cannot be asked how much time a kernel had, so it is many times what an honest
    launch takes while others share the GPU."""
    printf_bytes: int = 256 << 10
    """Size of the driver's printf buffer; what does not fit is lost."""

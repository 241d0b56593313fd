"""How much work one verdict may ask of devices, over all its calls and replays.

A call has limits of its own (`RunLimits`), but a verdict repeats each call some thirty times. What
a device does is counted in processor time, its own and ours, so that a busy machine fails nobody;
a GPU is counted by the clock while nothing else of ours waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status

WORK_S = 40.0
"""With a compilation, PyTorch's references and the comparisons, a verdict then stays below a
minute on two idle cores."""
WORK_BYTES = 1 << 40
"""Of copies, fills and allocations: a GPU takes half a second to write them."""


@dataclass(slots=True)
class WorkMeter:
    """Maker: a candidate's trial. Consumer: every device that it uses."""

    seconds: float = 0.0
    nbytes: int = 0

    def spend(self, seconds: float, nbytes: int = 0) -> None:
        """Count some work. Raises CandidateFault (timeout) over the budget."""
        self.seconds += seconds
        self.nbytes += nbytes
        if self.seconds > WORK_S:
            raise CandidateFault(
                Status.TIMEOUT,
                f"its launches, allocations, fills and copies took more than {WORK_S:.0f} s of "
                "processor time, over all calls and replays of the verdict",
            )
        if self.nbytes > WORK_BYTES:
            raise CandidateFault(
                Status.TIMEOUT,
                f"its allocations, fills and copies came to more than {WORK_BYTES >> 40} TiB, over "
                "all calls and replays of the verdict",
            )

"""Performance and correctness pitfalls of a kernel, from what its run and its compiler measured.

Each finding says its basis: counters, the compiler, the run, or, only where no run counted
anything, the source. Thresholds are where Nsight Compute's own rules begin to speak.
"""

from __future__ import annotations

from collections.abc import Sequence

from coding_framework.cuda.advice.source_pitfalls import source_pitfalls
from coding_framework.cuda.plan.launch_plan import Fault
from coding_framework.ncu_metrics import (
    Counters,
    active_lanes,
    bank_conflicts,
    occupancy_pct,
    sectors_per_request,
)
from coding_framework.types import CompilationResult, Finding

_MANY_SECTORS = 8.0  # 4 serve a warp's 32 consecutive 4-byte words
_LOW_OCCUPANCY_PCT = 25.0
_FEW_LANES = 16.0  # of 32; Nsight speaks below 24, where honest tails of rows are as well


class CUDAPitfallDetector:
    """Findings on one candidate; holds no state."""

    def detect(
        self,
        compilation: CompilationResult | None,
        counters: Counters,
        faults: Sequence[Fault],
        source: str = "",
    ) -> tuple[Finding, ...]:
        """Everything that is known so far; empty arguments give no findings. `source` is looked at
        only where there are no counters: what was measured is not guessed."""
        found = [
            Finding(rule=f.kind, severity="high", line=f.line, message=f.message, basis="run")
            for f in faults
        ]
        if compilation is not None:
            found += _of_compiler(compilation)
        found += _of_counters(counters) if counters else source_pitfalls(source)
        unique = {(f.rule, f.line, f.message): f for f in found}
        return tuple(unique.values())


def _of_compiler(compilation: CompilationResult) -> list[Finding]:
    found = []
    for kernel in compilation.kernels:
        if kernel.spill_bytes:
            found.append(
                Finding(
                    rule="register_spill",
                    severity="medium",
                    line=None,
                    message=f"{kernel.name} spills {kernel.spill_bytes} bytes of registers to "
                    "local memory",
                    basis="compiler",
                )
            )
    return found


def _of_counters(counters: Counters) -> list[Finding]:
    found = []
    for what, op in (("load", "ld"), ("store", "st")):
        sectors = sectors_per_request(counters, op)
        if sectors is not None and sectors > _MANY_SECTORS:
            found.append(
                _counted(
                    f"uncoalesced_{what}",
                    f"global {what}s touch {sectors:.1f} sectors a request (4 are ideal for 4-byte "
                    "words): neighbouring threads should use neighbouring addresses",
                )
            )
    lanes = active_lanes(counters)
    if lanes is not None and 0.0 < lanes < _FEW_LANES:
        message = f"{lanes:.1f} of a warp's 32 threads are active on average"
        found.append(
            Finding(rule="divergence", severity="low", line=None, message=message, basis="counters")
        )
    conflicts = bank_conflicts(counters)
    if conflicts:
        found.append(_counted("bank_conflicts", f"{conflicts:.0f} shared-memory bank conflicts"))
    occupancy = occupancy_pct(counters)
    if occupancy is not None and occupancy < _LOW_OCCUPANCY_PCT:
        found.append(_counted("low_occupancy", f"only {occupancy:.0f}% of the warp slots are used"))
    return found


def _counted(rule: str, message: str) -> Finding:
    return Finding(rule=rule, severity="medium", line=None, message=message, basis="counters")

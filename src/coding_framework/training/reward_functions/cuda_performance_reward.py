"""What a verdict is worth, in named parts that say why.

Guaranteed, and property-tested: no turn that is not correct outranks a correct one; a higher
speedup never lowers the total; a cheat earns nothing; a masked turn has no reward at all; partial
credit is paid once a conversation, so that turns of it never add up to a correct one's. Pure: no
clock, no process, no state of its own, so a stored conversation can be scored again under another
preset (`rescored`).

Only `correct` is paid for performance, efficiency, quality and bonuses: a fast wrong kernel is a
wrong kernel. On the emulator the speedup is modelled, over the task's naive kernel, and the part's
sentence says so.
"""

from __future__ import annotations

import math

from coding_framework.ncu_metrics import (
    LOADS_AND_STORES,
    Counters,
    active_lanes,
    free_of_conflicts,
    measured_occupancy_pct,
    possible_occupancy_pct,
    used_share,
)
from coding_framework.training.reward_functions.presets import (
    Milestone,
    RewardPreset,
    preset_named,
)
from coding_framework.types import (
    BenchmarkResult,
    CUDAConversationState,
    RewardComponents,
    RewardPart,
    Status,
    Verdict,
)

PAYS_COMPILATION = frozenset(
    {
        Status.CORRECT,
        Status.WRONG_OUTPUT,
        Status.NONDETERMINISTIC,
        Status.LOAD_ERROR,
        Status.RUNTIME_ERROR,
        Status.TIMEOUT,
    }
)
"""`rejected`, `cheating`, `memory_limit` and `output_limit` may have compiled too, but paying for
them would teach what the rules forbid."""

REGISTERS_FREE = 64
"""Registers a thread that leave an H100-class SM (65,536) at full occupancy of 1,024 threads."""
REGISTERS_MOST = 255
SHARED_FREE_BYTES = 48 * 1024
"""Static shared memory a block; more needs opting in and costs resident blocks."""
SHARED_MOST_BYTES = 227 * 1024
WARP_LANES = 32
WARNING_COST = 0.2
SPILL_COST = 0.4
PITFALL_COST = 0.2


class CUDAPerformanceReward:
    """The reward of a conversation's last turn under one preset.

    Maker of `RewardComponents`; consumers are credit assignment, reports and the early stop.
    """

    def __init__(self, preset: str | RewardPreset = "weighted") -> None:
        """Raises UsageError for a preset that does not exist."""
        self.preset = preset_named(preset) if isinstance(preset, str) else preset

    def __call__(self, state: CUDAConversationState) -> RewardComponents | None:
        """Reward of the last turn; None where it is masked."""
        turn = state.turns[-1]
        if turn.masked is not None or turn.verdict is None:
            return None
        earlier = [t for t in state.turns[:-1] if t.verdict is not None]
        speedups = [t.verdict.speedup or 0.0 for t in earlier if t.verdict and t.verdict.correct]
        return self.score(
            turn.verdict,
            best_before=max(speedups, default=None),
            credited=any(t.verdict and _earned_compilation(t.verdict) for t in earlier),
        )

    def score(
        self, verdict: Verdict, *, best_before: float | None = None, credited: bool = False
    ) -> RewardComponents | None:
        """Reward of one verdict; None for `unsupported`, which is a gap of ours.

        best_before: largest speedup of the earlier correct turns, None where there is none.
        credited: an earlier turn of this conversation was paid for compilation.
        """
        if verdict.status is Status.UNSUPPORTED:
            return None
        parts: tuple[RewardPart, ...]
        if verdict.status is Status.CHEATING:
            parts = (_cheating(verdict, self.preset),)
        elif self.preset.scheme == "weighted":
            parts = _weighted(verdict, self.preset, best_before, credited)
        elif self.preset.scheme == "gated":
            parts = _gated(verdict, self.preset)
        elif self.preset.scheme == "kevin":
            parts = _kevin(verdict, self.preset)
        else:
            parts = _milestones(verdict, self.preset)
        return RewardComponents(preset=self.preset.name, parts=parts)


def rescored(state: CUDAConversationState, preset: str | RewardPreset) -> CUDAConversationState:
    """The same conversation with the rewards of another preset; nothing is judged again."""
    reward = CUDAPerformanceReward(preset)
    again = state.model_copy(update={"turns": ()})
    for turn in state.turns:
        grown = again.model_copy(update={"turns": (*again.turns, turn)})
        paid = turn.model_copy(update={"reward": reward(grown)})
        again = again.model_copy(update={"turns": (*again.turns, paid)})
    return again


# --- schemes --------------------------------------------------------------------------------------


def _weighted(
    verdict: Verdict, preset: RewardPreset, best_before: float | None, credited: bool
) -> tuple[RewardPart, ...]:
    compiled = _earned_compilation(verdict)
    compilation = RewardPart(
        name="compilation",
        value=preset.compilation if compiled else 0.0,
        limit=preset.compilation,
        why="nvcc accepted the code" if compiled else f"not paid on {verdict.status}",
    )
    correctness = _correctness(verdict, preset)
    if not verdict.correct:
        parts: tuple[RewardPart, ...] = (compilation, correctness)
        if compiled and credited:
            parts += (_paid_before(compilation.value, preset),)
        return parts
    return (
        compilation,
        correctness,
        _performance(verdict, preset),
        _bonus(verdict, preset),
        _efficiency(verdict, preset),
        _quality(verdict, preset),
        *((_memory(verdict, preset),) if preset.memory else ()),
        _improvement(verdict, preset, best_before),
    )


def _gated(verdict: Verdict, preset: RewardPreset) -> tuple[RewardPart, ...]:
    """0 unless correct. The documents' formula also subtracts 0.1 for a timeout, which this gate
    leaves without a case: a kernel that ran out of time is not correct."""
    correctness = _correctness(verdict, preset)
    if not verdict.correct:
        return (correctness,)
    registers, shared = _pressures(verdict)
    shuffles = _shuffled(verdict.counters)
    coalesced = used_share(verdict.counters, *LOADS_AND_STORES)
    return (
        correctness,
        _performance(verdict, preset),
        _penalty("register_pressure", registers, preset.quality, "registers a thread"),
        _penalty("shared_memory", shared, preset.quality, "shared memory a block"),
        RewardPart(
            name="warp_shuffle",
            value=preset.efficiency if shuffles else 0.0,
            limit=preset.efficiency,
            why="warp shuffles were executed" if shuffles else "no warp shuffle was executed",
        ),
        RewardPart(
            name="coalesced",
            value=preset.efficiency * (coalesced or 0.0),
            limit=preset.efficiency,
            why="no counters of global memory"
            if coalesced is None
            else f"{coalesced:.0%} of the bytes of each sector were used",
        ),
    )


def _kevin(verdict: Verdict, preset: RewardPreset) -> tuple[RewardPart, ...]:
    correctness = _correctness(verdict, preset)
    if not verdict.correct:
        return (correctness,)
    speedup, label = _speedup(verdict.timing)
    limit = preset.performance * preset.speedup_cap
    value = min(preset.performance * speedup, limit)
    why = f"{speedup:.2f}x {label}, capped at {preset.speedup_cap:g}x"
    return (correctness, RewardPart(name="performance", value=value, limit=limit, why=why))


def _milestones(verdict: Verdict, preset: RewardPreset) -> tuple[RewardPart, ...]:
    """Correctness, and speed over PyTorch by the clock of a GPU. The emulator's model is paid
    nothing here: at its small sizes it orders kernels otherwise than a GPU does at real ones."""
    correctness = _correctness(verdict, preset)
    if not verdict.correct:
        return (correctness,)
    timing = verdict.timing
    measured = timing if timing is not None and not timing.modelled else None
    return (correctness, *(_milestone(m, measured) for m in preset.milestones))


def _milestone(milestone: Milestone, timing: BenchmarkResult | None) -> RewardPart:
    found = None if timing is None else timing.over(milestone.over)
    over = "PyTorch eager" if milestone.over == "eager" else "torch.compile"
    why = f"{found:.2f}x over {over}" if found is not None else f"no time of {over} was measured"
    reached = found is not None and found >= milestone.speedup
    return RewardPart(
        name=f"{milestone.speedup:g}x_{milestone.over}",
        value=milestone.adds if reached else 0.0,
        limit=milestone.adds,
        why=why,
    )


# --- parts ----------------------------------------------------------------------------------------


def _cheating(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    rules = ", ".join(sorted({finding.rule for finding in verdict.cheats}))
    penalty = preset.cheating_penalty
    return RewardPart(name="cheating", value=penalty, limit=penalty, why=f"evidence: {rules}")


def _correctness(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    why = (
        f"all {len(verdict.tests)} tests passed"
        if verdict.correct
        else f"not paid on {verdict.status}"
    )
    value = preset.correctness if verdict.correct else 0.0
    return RewardPart(name="correctness", value=value, limit=preset.correctness, why=why)


def _earned_compilation(verdict: Verdict) -> bool:
    return verdict.compiled and verdict.status in PAYS_COMPILATION


def _paid_before(partial: float, preset: RewardPreset) -> RewardPart:
    why = "an earlier turn compiled already: partial credit is paid once a conversation"
    return RewardPart(name="paid_before", value=-partial, limit=-preset.compilation, why=why)


def _performance(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    speedup, label = _speedup(verdict.timing)
    value = preset.performance * saturating(speedup, preset.speedup_midpoint)
    why = f"{speedup:.2f}x {label}" if label else "no time was taken"
    return RewardPart(name="performance", value=value, limit=preset.performance, why=why)


def _bonus(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    speedup, _ = _speedup(verdict.timing)
    value = preset.speedup_bonus * saturating(speedup, preset.bonus_midpoint)
    why = f"for large speedups; half of it at {preset.bonus_midpoint:g}x"
    return RewardPart(name="speedup_bonus", value=value, limit=preset.speedup_bonus, why=why)


def _efficiency(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    ratios = hardware_ratios(verdict.counters)
    if verdict.timing is not None and verdict.timing.roofline_fraction is not None:
        ratios["roofline"] = _unit(verdict.timing.roofline_fraction)
    traffic = verdict.counters.get("dram__bytes.sum")
    if traffic and verdict.timing is not None and verdict.timing.bytes_moved is not None:
        ratios["DRAM traffic needed"] = _unit(verdict.timing.bytes_moved / traffic)
    mean = sum(ratios.values()) / len(ratios) if ratios else 0.0
    why = ", ".join(f"{name} {value:.0%}" for name, value in ratios.items()) or "no counters"
    limit = preset.efficiency
    return RewardPart(name="efficiency", value=limit * mean, limit=limit, why=why)


def _quality(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    summary = verdict.compile
    warnings = len(summary.warnings) if summary else 0
    spills = summary.spill_bytes if summary else 0
    pitfalls = sum(1 for f in verdict.pitfalls if f.severity in ("medium", "high"))
    registers, shared = _pressures(verdict)
    share = _unit(
        1.0
        - WARNING_COST * warnings
        - (SPILL_COST if spills else 0.0)
        - PITFALL_COST * pitfalls
        - PITFALL_COST * (registers + shared)
    )
    why = (
        f"{warnings} warnings, {spills} B spilled, {pitfalls} pitfalls, "
        f"register pressure {registers:.0%}, shared-memory pressure {shared:.0%}"
    )
    limit = preset.quality
    return RewardPart(name="quality", value=limit * share, limit=limit, why=why)


def _memory(verdict: Verdict, preset: RewardPreset) -> RewardPart:
    found = None if verdict.timing is None else verdict.timing.memory_ratio
    why = "not known" if found is None else f"eager holds {found:.2f}x its memory at the peak"
    value, limit = preset.memory * _unit(found or 0.0), preset.memory
    return RewardPart(name="memory", value=value, limit=limit, why=why)


def _improvement(verdict: Verdict, preset: RewardPreset, best_before: float | None) -> RewardPart:
    limit = preset.improvement_bonus
    if best_before is None:
        why = "no earlier correct turn to improve on"
        return RewardPart(name="improvement", value=0.0, limit=limit, why=why)
    speedup, _ = _speedup(verdict.timing)
    now = saturating(speedup, preset.speedup_midpoint)
    gain = max(0.0, now - saturating(best_before, preset.speedup_midpoint))
    why = f"{speedup:.2f}x after {best_before:.2f}x"
    return RewardPart(name="improvement", value=limit * gain, limit=limit, why=why)


def _penalty(name: str, pressure: float, weight: float, what: str) -> RewardPart:
    why = f"{pressure:.0%} of the way from free to the most of {what}"
    return RewardPart(name=name, value=-weight * pressure, limit=-weight, why=why)


# --- curves and ratios ----------------------------------------------------------------------------


def saturating(speedup: float, midpoint: float) -> float:
    """s / (s + midpoint), in [0, 1): rises everywhere, ever more slowly."""
    if math.isnan(speedup):
        return 0.0
    bounded = min(max(speedup, 0.0), 1e9)
    return bounded / (bounded + midpoint)


def hardware_ratios(counters: Counters) -> dict[str, float]:
    """The shares of the hardware that the kernel used well, each in [0, 1]; absent ones left out.

    Names are Nsight Compute's. Ratios are made from sums, so that they hold over many launches.
    """
    lanes, measured = active_lanes(counters), measured_occupancy_pct(counters)
    possible = possible_occupancy_pct(counters) if measured is None else None
    known = {
        "active lanes": None if lanes is None else lanes / WARP_LANES,
        "coalescing": used_share(counters, *LOADS_AND_STORES),
        "free of bank conflicts": free_of_conflicts(counters),
        "occupancy": None if measured is None else measured / 100.0,
        "theoretical occupancy": None if possible is None else possible / 100.0,
    }
    return {label: _unit(ratio) for label, ratio in known.items() if ratio is not None}


def _shuffled(counters: Counters) -> bool:
    name = "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum"
    return counters.get(name, 0.0) > 0


def _pressures(verdict: Verdict) -> tuple[float, float]:
    """(registers, shared memory): 0 where free, 1 at the most the hardware has."""
    summary = verdict.compile
    if summary is None:
        return 0.0, 0.0
    registers = (summary.registers - REGISTERS_FREE) / (REGISTERS_MOST - REGISTERS_FREE)
    shared = (summary.shared_bytes - SHARED_FREE_BYTES) / (SHARED_MOST_BYTES - SHARED_FREE_BYTES)
    return _unit(registers), _unit(shared)


def _speedup(timing: BenchmarkResult | None) -> tuple[float, str]:
    """(speedup, over what); (0, "") where there is no time to compare."""
    if timing is None:
        return 0.0, ""
    if timing.speedup is not None:
        return timing.speedup, "over PyTorch eager (measured)"
    if timing.speedup_vs_naive is not None:
        how = "modelled" if timing.modelled else "measured"
        return timing.speedup_vs_naive, f"over the naive kernel ({how})"
    return 0.0, ""


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)

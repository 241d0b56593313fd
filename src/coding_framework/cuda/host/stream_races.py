"""The sentence about two operations of a call that no stream orders."""

from __future__ import annotations

from coding_framework.cuda.build.kernel_names import readable
from coding_framework.cuda.plan.launch_plan import (
    CandidateFault,
    Copy,
    Fill,
    Launch,
    LaunchPlan,
    PlanOp,
    ReadBack,
    Upload,
)
from coding_framework.cuda.plan.stream_order import INPUTS
from coding_framework.types import Status

_MOVES: dict[type[PlanOp], str] = {
    Upload: "a copy from the host",
    Copy: "a copy",
    Fill: "a memset",
    ReadBack: "a copy to the host",
}


def stream_race(
    plan: LaunchPlan, earlier: int, later: int, writes: bool | None, detail: str
) -> CandidateFault:
    """The fault of two operations that nothing orders. writes: whether the later one does, where
    that is known."""
    how = "" if writes is None else ", which writes," if writes else ", which reads,"
    return CandidateFault(
        Status.NONDETERMINISTIC,
        f"{_described(plan, later)}{how} touches the same bytes as {_described(plan, earlier)}, "
        "and neither stream, event nor synchronisation orders them"
        + (f" ({detail})" if detail else ""),
    )


def _described(plan: LaunchPlan, number: int) -> str:
    if number == INPUTS:
        return "the caller, who makes the inputs on the default stream"
    if number >= len(plan.ops):
        return "the caller, who takes the outputs on the default stream"
    op = plan.ops[number]
    name = f"the launch of {readable(op.kernel)}" if isinstance(op, Launch) else _MOVES[type(op)]
    stream = f" on stream {op.stream:#x}" if isinstance(op, Launch) and op.stream else ""
    return f"{name}{stream} (operation {number + 1} of the call)"

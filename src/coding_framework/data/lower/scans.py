"""Running values along the last axis, by a warp: 32 neighbours at a time, in five shuffles."""

from __future__ import annotations

from typing import Any

from coding_framework.data.lower.naive import Group, cast, start_of, typed
from coding_framework.data.lower.text import C_TYPES
from coding_framework.data.lower.workers import WARPS
from coding_framework.data.ops.heads import SCANS, over_axes
from coding_framework.data.ops.views import axis_of


def by_warps(w: Any, group: Group) -> bool:
    """A kernel of one warp for each line; False where neighbours along the axis lie apart."""
    head = group.head
    shape, axis = head["self"].type.shape, axis_of(head)
    if any(size != 1 for size in shape[axis + 1 :]):
        return False
    scan, dtype = SCANS[head.base], head.type.dtype
    kind, suffix = C_TYPES[dtype].computed, C_TYPES[dtype].suffix
    layout = over_axes((axis,), shape, keepdim=True)
    start = start_of(scan, dtype)
    body = w.body()
    places = body.split("i", body.dims(layout.rows), "i")
    count = body.dims(layout.inner)[0]
    lane = body.let("int", "lane", WARPS.start)
    running = body.variable(kind, "running", start)
    where = body.variable("int", "where", "0") if scan.arg else ""

    def join(left: str, right: str, to: str, left_at: str, right_at: str, to_at: str) -> None:
        """What comes of a value and one behind it."""
        step = typed(scan.step, dtype).format(a=left, x=right, f=suffix)
        if not scan.arg:
            body.line(f"{to} = {step};")
        else:
            keeps = to == right
            with body.block(f"if ({f'!({step})' if keeps else step})"):
                body.line(f"{to} = {left if keeps else right};")
                body.line(f"{to_at} = {left_at if keeps else right_at};")

    with body.block(f"for (int first = 0; first < {count}; first += 32)"):
        r = body.let("int", "r", f"first + {lane}")
        x = body.variable(kind, "x", start)
        at = body.variable("int", "at", r) if scan.arg else ""
        there = layout.place(body, places, [r])
        with body.block(f"if ({r} < {count})"):
            text = cast(w.read(head["self"], body, there), head["self"].type.dtype, dtype)
            body.line(f"{x} = {text};")
        with body.block("for (int d = 1; d < 32; d *= 2)"):
            before = body.let(kind, "before", f"__shfl_up_sync(0xffffffff, {x}, d)")
            before_at = ""
            if scan.arg:
                before_at = body.let("int", "before_at", f"__shfl_up_sync(0xffffffff, {at}, d)")
            with body.block(f"if ({lane} >= d)"):
                join(before, x, x, before_at, at, at)
        join(running, x, x, where, at, at)
        body.line(f"{running} = __shfl_sync(0xffffffff, {x}, 31);")
        if scan.arg:
            body.line(f"{where} = __shfl_sync(0xffffffff, {at}, 31);")
        with body.block(f"if ({r} < {count})"):
            results = {0: x, 1: at} if scan.arg else {0: x}
            writes = w.finish(group, body, there, results)
    w.launch(w.kernel_name(group), body, writes, layout.rows, WARPS)
    return True

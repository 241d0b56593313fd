"""Figures that the server draws as SVG: a reward's waterfall, the roofline, times, shares.

No style stands in them: colours are classes of the page's style sheet. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from coding_framework.monitoring.text import one_line
from coding_framework.viewer.rendering import number

WIDTH = 640


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a sum."""

    name: str
    value: float
    limit: float | None = None


def waterfall(parts: Sequence[Step]) -> Markup:
    """Each part as a bar from where the one before ended; the total last, from 0."""
    ends = [0.0]
    for part in parts:
        ends.append(ends[-1] + part.value)
    reach = [ends[i] + (p.limit or p.value) for i, p in enumerate(parts)]
    low, high = min(0.0, *ends, *reach), max(0.0, *ends, *reach)
    scale = 320 / ((high - low) or 1.0)

    def at(value: float) -> float:
        return round(190 + (value - low) * scale, 1)

    body = [f'<line class="zero" x1="{at(0)}" x2="{at(0)}" y1="0" y2="{26 * len(parts) + 30}"/>']
    for i, part in enumerate(parts):
        y, start, end = 26 * i + 4, ends[i], ends[i + 1]
        if part.limit is not None:
            x, wide = _between(at(start), at(start + part.limit))
            body.append(f'<rect class="limit" x="{x}" y="{y}" width="{wide}" height="16" rx="3"/>')
        x, wide = _between(at(start), at(end))
        kind = "gain" if part.value >= 0 else "loss"
        body.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{max(wide, 1.5)}" height="16" rx="3"/>'
        )
        body.append(_label(part.name, y))
        body.append(
            f'<text x="{WIDTH - 4}" y="{y + 13}" text-anchor="end">{part.value:+.3f}</text>'
        )
        body.append(
            f'<line class="join" x1="{at(end)}" x2="{at(end)}" y1="{y + 16}" y2="{y + 26}"/>'
        )
    y, total = 26 * len(parts) + 4, ends[-1]
    x, wide = _between(at(0), at(total))
    body.append(
        f'<rect class="total" x="{x}" y="{y}" width="{max(wide, 1.5)}" height="16" rx="3"/>'
    )
    body.append(_label("total", y, "strong"))
    body.append(
        f'<text class="strong" x="{WIDTH - 4}" y="{y + 13}" text-anchor="end">{total:.3f}</text>'
    )
    return _svg(26 * len(parts) + 30, body, f"parts of the reward, {total:.3f} in all")


@dataclass(frozen=True, slots=True)
class Timed:
    """A measured or modelled time."""

    name: str
    ms: float
    low: float | None = None
    high: float | None = None
    main: bool = False


def times(rows: Sequence[Timed], *, modelled: bool) -> Markup:
    """Times as bars from 0, with their intervals."""
    most = max(max(r.ms, r.high or 0.0) for r in rows) or 1.0

    def at(value: float) -> float:
        return round(190 + 330 * value / most, 1)

    body = []
    for i, row in enumerate(rows):
        y = 28 * i + 4
        kind = f"bar{' main' if row.main else ''}{' modelled' if modelled else ''}"
        wide = round(max(at(row.ms) - 190, 1.5), 1)
        body.append(f'<rect class="{kind}" x="190" y="{y}" width="{wide}" height="18" rx="3"/>')
        if row.low is not None and row.high is not None and row.high > row.low:
            body.append(f'<path class="whisker" d="M{at(row.low)} {y + 9}H{at(row.high)}"/>')
        body.append(_label(row.name, y + 1, "strong" if row.main else ""))
        body.append(
            f'<text x="{WIDTH - 4}" y="{y + 14}" text-anchor="end">{number(row.ms)} ms</text>'
        )
    return _svg(28 * len(rows) + 4, body, "times")


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel in the roofline chart."""

    name: str
    intensity: float
    """Operations a byte of DRAM traffic that the function needs."""
    gflops: float
    main: bool = False


def roofline(points: Sequence[Placed], gbps: float, peak_gflops: float | None) -> Markup:
    """Both axes logarithmic: what memory and arithmetic allow, and where the kernels are."""
    ridge = peak_gflops / gbps if peak_gflops else None
    xs = [p.intensity for p in points] + ([ridge] if ridge else [])
    x_low, x_high = (
        10 ** math.floor(math.log10(min(xs) / 3)),
        10 ** math.ceil(math.log10(max(xs) * 3)),
    )
    top = peak_gflops or gbps * x_high
    y_high = 10 ** math.ceil(math.log10(top * 1.1))
    y_low = 10 ** math.floor(math.log10(min([p.gflops for p in points] + [gbps * x_low]) / 1.5))

    def x(value: float) -> float:
        return round(70 + 540 * math.log10(value / x_low) / math.log10(x_high / x_low), 1)

    def y(value: float) -> float:
        return round(250 - 230 * math.log10(value / y_low) / math.log10(y_high / y_low), 1)

    body = []
    for e in range(round(math.log10(x_low)), round(math.log10(x_high)) + 1):
        body.append(f'<line class="grid" x1="{x(10**e)}" x2="{x(10**e)}" y1="20" y2="250"/>')
        body.append(
            f'<text class="tick" x="{x(10**e)}" y="266" text-anchor="middle">{_power(e)}</text>'
        )
    for e in range(round(math.log10(y_low)), round(math.log10(y_high)) + 1):
        body.append(f'<line class="grid" x1="70" x2="610" y1="{y(10**e)}" y2="{y(10**e)}"/>')
        body.append(
            f'<text class="tick" x="62" y="{y(10**e) + 4}" text-anchor="end">{_power(e)}</text>'
        )
    bend = min(ridge or x_high, x_high)
    roof = f"M{x(x_low)} {y(max(gbps * x_low, y_low))}L{x(bend)} {y(gbps * bend)}"
    roof += f"L{x(x_high)} {y(top)}" if ridge else ""
    body.append(f'<path class="roof" d="{roof}"/>')
    body.append('<text class="axis" x="340" y="288" text-anchor="middle">operations a byte</text>')
    body.append('<text class="axis" x="8" y="12">Gop/s</text>')
    for p in points:
        kind, radius = ("point main", 6) if p.main else ("point", 4)
        body.append(
            f'<circle class="{kind}" cx="{x(p.intensity)}" cy="{y(p.gflops)}" r="{radius}">'
            f"<title>{escape(one_line(p.name))}: {number(p.gflops)} Gop/s at {number(p.intensity)}"
            " operations a byte</title></circle>"
        )
        if p.main:
            side = "end" if x(p.intensity) > 400 else "start"
            shift = -10 if side == "end" else 10
            body.append(
                f'<text class="strong" x="{x(p.intensity) + shift}" y="{y(p.gflops) + 4}" '
                f'text-anchor="{side}">{escape(one_line(p.name))}</text>'
            )
    return _svg(294, body, "roofline")


@dataclass(frozen=True, slots=True)
class Stair:
    """A step of a ramp."""

    name: str
    share: float
    standing: str
    """past, here or ahead."""


def stairs(steps: Sequence[Stair], title: str) -> Markup:
    """Steps as bars, each as high as its share; the least one can be seen too."""
    most = max((step.share for step in steps), default=1.0) or 1.0
    wide = WIDTH / max(1, len(steps))
    body = []
    for i, step in enumerate(steps):
        high = round(8 + 82 * step.share / most, 1)
        x, middle = round(i * wide + 3, 1), round((i + 0.5) * wide, 1)
        body.append(
            f'<rect class="stair {escape(step.standing)}" x="{x}" y="{100 - high}" '
            f'width="{round(wide - 6, 1)}" height="{high}" rx="3"/>'
        )
        css = "strong" if step.standing == "here" else ""
        mark = {"past": "✓ ", "here": "● "}.get(step.standing, "")
        body.append(
            f'<text class="{css}" x="{middle}" y="117" text-anchor="middle">'
            f"{mark}{escape(one_line(step.name, 20))}</text>"
        )
    return _svg(124, body, title)


def share_bar(counts: Sequence[tuple[str, int]]) -> Markup:
    """Counts of statuses as parts of one bar."""
    total = sum(count for _, count in counts) or 1
    body, position = [], 0.0
    for name, count in counts:
        wide = 1000 * count / total
        shown = max(wide - 2, 0.5)
        body.append(
            f'<rect class="s-{escape(name)}" x="{position:.2f}" y="0" width="{shown:.2f}" '
            f'height="14"><title>{escape(name)}: {count} ({count / total:.0%})</title></rect>'
        )
        position += wide
    return Markup(
        '<svg class="share" viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" '
        'aria-label="shares of the statuses">{}</svg>'
    ).format(Markup("".join(body)))


def _between(one: float, other: float) -> tuple[float, float]:
    return min(one, other), round(abs(other - one), 1)


def _label(name: str, y: float, css: str = "") -> str:
    shown = escape(one_line(name, 26))
    return f'<text class="{css}" x="180" y="{y + 13}" text-anchor="end">{shown}</text>'


def _power(exponent: int) -> str:
    return f"{10**exponent:g}" if -3 <= exponent <= 4 else f"1e{exponent}"


def _svg(height: float, body: Sequence[str], title: str) -> Markup:
    return Markup(
        '<svg class="figure" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, height, title, Markup("".join(body)))

"""Figures that the server draws as SVG: a reward's waterfall, the roofline, times, shares.

No style stands in them: colours are classes of the page's style sheet. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from coding_framework.evaluation.charts import dot, label, rect, rule, svg
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

    body = [rule("zero", at(0), 0, at(0), 26 * len(parts) + 30)]
    for i, part in enumerate(parts):
        y, start, end = 26 * i + 4, ends[i], ends[i + 1]
        if part.limit is not None:
            x, wide = _between(at(start), at(start + part.limit))
            body.append(rect("limit", x, y, wide, 16, rx=3))
        x, wide = _between(at(start), at(end))
        body.append(rect("gain" if part.value >= 0 else "loss", x, y, max(wide, 1.5), 16, rx=3))
        body.append(_name(part.name, y))
        body.append(label(f"{part.value:+.3f}", WIDTH - 4, y + 13, anchor="end"))
        body.append(rule("join", at(end), y + 16, at(end), y + 26))
    y, total = 26 * len(parts) + 4, ends[-1]
    x, wide = _between(at(0), at(total))
    body.append(rect("total", x, y, max(wide, 1.5), 16, rx=3))
    body.append(_name("total", y, "strong"))
    body.append(label(f"{total:.3f}", WIDTH - 4, y + 13, "strong", "end"))
    return _figure(26 * len(parts) + 30, body, f"parts of the reward, {total:.3f} in all")


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
        body.append(rect(kind, 190, y, wide, 18, rx=3))
        if row.low is not None and row.high is not None and row.high > row.low:
            body.append(f'<path class="whisker" d="M{at(row.low)} {y + 9}H{at(row.high)}"/>')
        body.append(_name(row.name, y + 1, "strong" if row.main else ""))
        body.append(label(f"{number(row.ms)} ms", WIDTH - 4, y + 14, anchor="end"))
    return _figure(28 * len(rows) + 4, body, "times")


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
        body.append(rule("grid", x(10**e), 20, x(10**e), 250))
        body.append(label(_power(e), x(10**e), 266, "tick", "middle"))
    for e in range(round(math.log10(y_low)), round(math.log10(y_high)) + 1):
        body.append(rule("grid", 70, y(10**e), 610, y(10**e)))
        body.append(label(_power(e), 62, y(10**e) + 4, "tick", "end"))
    bend = min(ridge or x_high, x_high)
    roof = f"M{x(x_low)} {y(max(gbps * x_low, y_low))}L{x(bend)} {y(gbps * bend)}"
    roof += f"L{x(x_high)} {y(top)}" if ridge else ""
    body.append(f'<path class="roof" d="{roof}"/>')
    body.append(label("operations a byte", 340, 288, "axis", "middle"))
    body.append(label("Gop/s", 8, 12, "axis"))
    for p in points:
        name, speed = one_line(p.name), f"{number(p.gflops)} Gop/s at {number(p.intensity)}"
        kind, radius = ("point main", 6) if p.main else ("point", 4)
        told = f"{name}: {speed} operations a byte"
        body.append(dot(kind, x(p.intensity), y(p.gflops), radius, told))
        if p.main:
            side, shift = ("end", -10) if x(p.intensity) > 400 else ("start", 10)
            body.append(label(name, x(p.intensity) + shift, y(p.gflops) + 4, "strong", side))
    return _figure(294, body, "roofline")


def share_bar(counts: Sequence[tuple[str, int]]) -> Markup:
    """Counts of statuses as parts of one bar."""
    total = sum(count for _, count in counts) or 1
    body, position = [], 0.0
    for name, count in counts:
        wide = 1000 * count / total
        shown, at = round(max(wide - 2, 0.5), 2), round(position, 2)
        told = f"{name}: {count} ({count / total:.0%})"
        body.append(rect(f"s-{name}", at, 0, shown, 14, told))
        position += wide
    return Markup(
        '<svg class="share" viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" '
        'aria-label="shares of the statuses">{}</svg>'
    ).format(Markup("".join(body)))


def _between(one: float, other: float) -> tuple[float, float]:
    return min(one, other), round(abs(other - one), 1)


def _name(name: str, y: float, css: str = "") -> str:
    return label(one_line(name, 26), 180, y + 13, css, "end")


def _power(exponent: int) -> str:
    return f"{10**exponent:g}" if -3 <= exponent <= 4 else f"1e{exponent}"


def _figure(height: float, body: Sequence[str], title: str) -> Markup:
    return svg(WIDTH, height, body, title, "figure")

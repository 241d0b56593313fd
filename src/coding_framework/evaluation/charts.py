"""Small SVG charts for the report: no script, no network, readable in light and dark.

Colours are CSS variables of the page (`--c1` ...), so that a chart follows its theme. Every text is
escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape
from pydantic import Field

from coding_framework.types import Record

WIDTH, HEIGHT = 500, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 38
LEGEND = 22
"""Height of the row with the names of several lines, above them."""


class Series(Record):
    """A line: (x, y) points in order."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int = Field(default=1, ge=1, le=6)
    band: tuple[tuple[float, float, float], ...] = ()
    """(x, low, high): the interval around the line, drawn as an area."""


class StackedBar(Record):
    """Counts that add up to a whole, drawn one behind the other."""

    name: str
    counts: tuple[int, ...]


class IntervalBar(Record):
    """A rate with its interval, both in [0, 1]."""

    name: str
    rate: float
    low: float
    high: float
    text: str
    """Shown at the end of the bar."""
    colour: int = Field(default=1, ge=1, le=6)


class _Axes:
    """Maps data to pixels."""

    def __init__(
        self, series: Sequence[Series], y_from_zero: bool, x_log: bool, share: bool = False
    ) -> None:
        xs = [x for s in series for x, _ in s.points]
        ys = [y for s in series for _, y in s.points]
        ys += [y for s in series for _, *ends in s.band for y in ends]
        self._place = math.log10 if x_log else float
        self.x_low, self.x_high = _widened(self._place(min(xs)), self._place(max(xs)))
        if x_log:
            self.x_ticks = [m * 10.0**e for e in range(-4, 7) for m in (1, 2, 5)]
        else:
            found = ticks(self.x_low, self.x_high, 8)
            steps = all(float(x).is_integer() for x in xs)  # there is nothing between two of them
            self.x_ticks = [x for x in found if float(x).is_integer()] if steps else found
        low = min(0.0, min(ys)) if y_from_zero else min(ys)
        self.y_ticks = ticks(0.0, 1.0) if share else ticks(*_widened(low, max(ys)))
        self.y_low, self.y_high = self.y_ticks[0], self.y_ticks[-1]

    def x(self, value: float) -> float:
        share = (self._place(value) - self.x_low) / (self.x_high - self.x_low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def has(self, x: float) -> bool:
        return self.x_low - 1e-9 <= self._place(x) <= self.x_high + 1e-9

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def line_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    y_from_zero: bool = False,
    x_log: bool = False,
    share: bool = False,
) -> Markup:
    """Lines with dots, over their bands; series without finite points are left out; "" where none
    has any. x_log: the x are positive, and their axis is logarithmic. share: the
    y are between 0 and 1, and so is their axis."""
    drawn = [_finite(s) for s in series]
    drawn = [s for s in drawn if s.points]
    if not drawn:
        return Markup("")
    axes = _Axes(drawn, y_from_zero, x_log, share)
    body = [*_grid(axes, x_label, y_label), *(_band(axes, s) for s in drawn if s.band)]
    for s in drawn:
        points = " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in s.points)
        body.append(f'<polyline class="line c{s.colour}" points="{points}"/>')
        if len(s.points) <= 60:
            body += [
                f'<circle class="dot c{s.colour}" cx="{axes.x(x)}" cy="{axes.y(y)}" r="3">'
                f"<title>{escape(s.name)}: {x:g}, {y:.4g}</title></circle>"
                for x, y in s.points
            ]
    if len(drawn) == 1:
        return _svg(HEIGHT, body, f"{y_label} over {x_label}")
    below = f'<g transform="translate(0 {LEGEND})">{"".join(body)}</g>'
    return _svg(HEIGHT + LEGEND, [*_legend(drawn), below], f"{y_label} over {x_label}")


def histogram(values: Sequence[float], *, x_label: str, y_label: str) -> Markup:
    """Counts of positive values in bins of equal ratio, a fifth of a power of ten wide; "" where
    there is none."""
    steps = [math.floor(5 * math.log10(value) + 1e-9) for value in values if 0 < value < math.inf]
    if not steps:
        return Markup("")
    first, last = min(steps), max(steps) + 1
    counts = {step: steps.count(step) for step in range(first, last)}
    corners = ((10 ** (first / 5), 0.0), (10 ** (last / 5), float(max(counts.values()))))
    axes = _Axes([Series(name="", points=corners)], y_from_zero=True, x_log=True)
    body = _grid(axes, x_label, y_label)
    for step, count in counts.items():
        left, right = axes.x(10 ** (step / 5)), axes.x(10 ** ((step + 1) / 5))
        top = axes.y(count)
        body.append(
            f'<rect class="bar c2" x="{left + 0.5}" y="{top}" width="{round(right - left - 1, 1)}" '
            f'height="{round(axes.y(0) - top, 1)}"><title>{10 ** (step / 5):.2g} to '
            f"{10 ** ((step + 1) / 5):.2g}: {count}</title></rect>"
        )
    return _svg(HEIGHT, body, f"{y_label} over {x_label}")


def stacked_chart(bars: Sequence[StackedBar], parts: Sequence[str], *, title: str) -> Markup:
    """A horizontal bar a row, cut into its parts; each is as wide as its share of the row."""
    row, left, right, top = 34, 64, 60, 26
    width = WIDTH - left - right
    body = [
        f'<rect class="bar c{i + 1}" x="{left + 108 * i}" y="2" width="12" height="12"/>'
        f'<text class="tick" x="{left + 108 * i + 17}" y="12">{escape(part)}</text>'
        for i, part in enumerate(parts)
    ]
    for i, bar in enumerate(bars):
        y, x, total = top + row * i, float(left), sum(bar.counts)
        body.append(
            f'<text class="label" x="{left - 10}" y="{y + 17}" text-anchor="end">'
            f"{escape(bar.name)}</text>"
        )
        for number, count in enumerate(bar.counts):
            wide = width * count / max(1, total)
            body.append(
                f'<rect class="bar c{number + 1}" x="{x:.1f}" y="{y}" width="{wide:.1f}" '
                f'height="24"><title>{escape(parts[number])}: {count}</title></rect>'
            )
            if wide > 24:
                body.append(
                    f'<text class="inside" x="{x + wide / 2:.1f}" y="{y + 16}" '
                    f'text-anchor="middle">{count}</text>'
                )
            x += wide
        body.append(f'<text class="tick" x="{WIDTH - right + 10}" y="{y + 17}">{total}</text>')
    return _svg(top + row * len(bars), body, title)


def standalone(chart: Markup) -> str:
    """The chart as a file of its own, with colours that do not need a page."""
    head, _, body = str(chart).partition(">")
    spaced = head if "xmlns" in head else head + ' xmlns="http://www.w3.org/2000/svg"'
    return f"{spaced}>{_STYLE}{body}\n"


_INKS = ("#8a94a0", "#2b6cb0", "#2f855a", "#c05621", "#6b46c1", "#b03060")
_STYLE = (
    "<style>svg { background: #ffffff; font: 12px sans-serif; } .grid { stroke: #d8d8d8; } "
    ".tick, .label, .axis { fill: #333333; } .inside { fill: #ffffff; } "
    ".line { fill: none; stroke-width: 2; } .whisker { fill: none; stroke: #333333; } "
    ".band { opacity: 0.18; } "
    + " ".join(
        f".line.c{i} {{ stroke: {ink}; }} .dot.c{i}, .bar.c{i}, .band.c{i} {{ fill: {ink}; }}"
        for i, ink in enumerate(_INKS, start=1)
    )
    + "</style>"
)


def interval_chart(bars: Sequence[IntervalBar], *, title: str) -> Markup:
    """Horizontal bars with their 95% intervals, on an axis of 0 to 100%."""
    row, left, right = 34, 64, 124
    height = row * len(bars) + 30

    def x(share: float) -> float:
        return round(left + share * (WIDTH - left - right), 1)

    bottom = row * len(bars) + 6
    body = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        body.append(f'<line class="grid" x1="{x(share)}" y1="0" x2="{x(share)}" y2="{bottom}"/>')
        body.append(
            f'<text class="tick" x="{x(share)}" y="{bottom + 16}" text-anchor="middle">'
            f"{share:.0%}</text>"
        )
    for i, bar in enumerate(bars):
        middle = row * i + row / 2
        body += [
            f'<text class="label" x="{left - 10}" y="{middle + 4}" text-anchor="end">'
            f"{escape(bar.name)}</text>",
            f'<rect class="bar c{bar.colour}" x="{left}" y="{middle - 9}" height="18" rx="3" '
            f'width="{round(max(x(bar.rate) - left, 0.5), 1)}"/>',
            f'<path class="whisker" d="M{x(bar.low)} {middle - 5}v10m0 -5H{x(bar.high)}m0 -5v10"/>',
            f'<text class="label" x="{WIDTH - right + 12}" y="{middle + 4}">'
            f"{escape(bar.text)}</text>",
        ]
    return _svg(height, body, title)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span [low, high], about `count` of them."""
    raw = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _grid(axes: _Axes, x_label: str, y_label: str) -> list[str]:
    body = []
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in axes.y_ticks:
        y = axes.y(value)
        body.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        body.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:g}</text>'
        )
    for value in axes.x_ticks:
        if axes.has(value):
            body.append(
                f'<text class="tick" x="{axes.x(value)}" y="{bottom + 16}" '
                f'text-anchor="middle">{value:g}</text>'
            )
    middle = (LEFT + right) / 2
    body.append(
        f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    body.append(
        f'<text class="axis" x="14" y="{(TOP + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + bottom) / 2})">{escape(y_label)}</text>'
    )
    return body


def _band(axes: _Axes, series: Series) -> str:
    there = [f"{axes.x(x)},{axes.y(low)}" for x, low, _ in series.band]
    back = [f"{axes.x(x)},{axes.y(high)}" for x, _, high in reversed(series.band)]
    return f'<polygon class="band c{series.colour}" points="{" ".join(there + back)}"/>'


def _legend(series: Sequence[Series]) -> list[str]:
    body, x = [], float(LEFT)
    for s in series:
        body.append(f'<rect class="bar c{s.colour}" x="{x:g}" y="4" width="12" height="12"/>')
        body.append(f'<text class="tick" x="{x + 18:g}" y="14">{escape(s.name)}</text>')
        x += 40 + 6.5 * len(s.name)
    return body


def _svg(height: float, body: Sequence[str], title: str) -> Markup:
    content = "".join(body)
    return Markup(  # built above from numbers and escaped text only
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{content}</svg>"
    )


def _finite(series: Series) -> Series:
    points = tuple(p for p in series.points if math.isfinite(p[0]) and math.isfinite(p[1]))
    return series.model_copy(update={"points": points})


def _widened(low: float, high: float) -> tuple[float, float]:
    if high > low:
        return low, high
    margin = abs(low) * 0.1 or 0.5
    return low - margin, high + margin

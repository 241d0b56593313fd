"""The one writer of SVG, and the small charts of the reports: no script, no network.

Colours are classes of the page's style sheet, so that a chart follows its theme. Every text is
escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape
from pydantic import Field

from coding_framework.monitoring.text import visible
from coding_framework.types import Record

WIDTH, HEIGHT = 500, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 38
LEGEND = 22
"""Height of the row with the names of several lines, above them."""


def rect(
    css: str, x: float, y: float, width: float, height: float, title: str = "", *, rx: int = 0
) -> str:
    """A filled box; title: what it says under the pointer."""
    corner = f' rx="{rx}"' if rx else ""
    shape = f'rect class="{escape(css)}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f"<{shape}{corner}>{_title(title)}</rect>" if title else f"<{shape}{corner}/>"


def dot(css: str, x: float, y: float, radius: int, title: str) -> str:
    """A filled circle."""
    return f'<circle class="{css}" cx="{x:g}" cy="{y:g}" r="{radius}">{_title(title)}</circle>'


def rule(css: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line."""
    return f'<line class="{css}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def label(said: object, x: float, y: float, css: str = "", anchor: str = "start") -> str:
    """A text; anchor: which of its ends lies at x (start, middle, end)."""
    kind = f' class="{css}"' if css else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{kind} x="{x:g}" y="{y:g}"{where}>{escape(visible(str(said)))}</text>'


def svg(width: float, height: float, body: Sequence[str], title: str, css: str = "") -> Markup:
    """The drawing; body: made by the functions above, of numbers and escaped text only."""
    return Markup('<svg{} viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}</svg>').format(
        Markup(f' class="{css}"' if css else ""), width, height, title, Markup("".join(body))
    )


def _title(said: str) -> str:
    return f"<title>{escape(visible(said))}</title>"


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
    joined: bool = True,
) -> Markup:
    """Lines with dots, over their bands; series without finite points are left out; "" where none
    has any. x_log: the x are positive, and their axis is logarithmic. share: the
    y are between 0 and 1, and so is their axis. joined: False: the dots alone."""
    drawn = [_finite(s) for s in series]
    drawn = [s for s in drawn if s.points]
    if not drawn:
        return Markup("")
    axes = _Axes(drawn, y_from_zero, x_log, share)
    body = [*_grid(axes, x_label, y_label), *(_band(axes, s) for s in drawn if s.band)]
    for s in drawn:
        points = " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in s.points)
        if joined and len(s.points) > 2:  # two points are no course
            body.append(f'<polyline class="line c{s.colour}" points="{points}"/>')
        if not joined or len(s.points) <= 60:
            body += [
                dot(f"dot c{s.colour}", axes.x(x), axes.y(y), 3, f"{s.name}: {x:g}, {y:.4g}")
                for x, y in s.points
            ]
    if len(drawn) == 1:
        return svg(WIDTH, HEIGHT, body, f"{y_label} over {x_label}")
    below = f'<g transform="translate(0 {LEGEND})">{"".join(body)}</g>'
    return svg(WIDTH, HEIGHT + LEGEND, [*_legend(drawn), below], f"{y_label} over {x_label}")


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
        told = f"{10 ** (step / 5):.2g} to {10 ** ((step + 1) / 5):.2g}: {count}"
        wide, high = round(right - left - 1, 1), round(axes.y(0) - top, 1)
        body.append(rect("bar c2", left + 0.5, top, wide, high, told))
    return svg(WIDTH, HEIGHT, body, f"{y_label} over {x_label}")


def stacked_chart(bars: Sequence[StackedBar], parts: Sequence[str], *, title: str) -> Markup:
    """A horizontal bar a row, cut into its parts; each is as wide as its share of the row."""
    row, left, right, top = 34, 64, 60, 26
    width = WIDTH - left - right
    body = []
    for i, part in enumerate(parts):
        body.append(rect(f"bar c{i + 1}", left + 108 * i, 2, 12, 12))
        body.append(label(part, left + 108 * i + 17, 12, "tick"))
    for i, bar in enumerate(bars):
        y, x, total = top + row * i, float(left), sum(bar.counts)
        body.append(label(bar.name, left - 10, y + 17, "label", "end"))
        for number, count in enumerate(bar.counts):
            wide = round(width * count / max(1, total), 1)
            body.append(rect(f"bar c{number + 1}", x, y, wide, 24, f"{parts[number]}: {count}"))
            if wide > 24:
                body.append(label(count, round(x + wide / 2, 1), y + 16, "inside", "middle"))
            x += wide
        body.append(label(total, WIDTH - right + 10, y + 17, "tick"))
    return svg(WIDTH, top + row * len(bars), body, title)


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
        body.append(rule("grid", x(share), 0, x(share), bottom))
        body.append(label(f"{share:.0%}", x(share), bottom + 16, "tick", "middle"))
    for i, bar in enumerate(bars):
        middle = row * i + row / 2
        wide = round(max(x(bar.rate) - left, 0.5), 1)
        body += [
            label(bar.name, left - 10, middle + 4, "label", "end"),
            rect(f"bar c{bar.colour}", left, middle - 9, wide, 18, rx=3),
            f'<path class="whisker" d="M{x(bar.low)} {middle - 5}v10m0 -5H{x(bar.high)}m0 -5v10"/>',
            label(bar.text, WIDTH - right + 12, middle + 4, "label"),
        ]
    return svg(WIDTH, height, body, title)


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
        body.append(rule("grid", LEFT, y, right, y))
        body.append(label(f"{value:g}", LEFT - 8, y + 4, "tick", "end"))
    for value in axes.x_ticks:
        if axes.has(value):
            body.append(label(f"{value:g}", axes.x(value), bottom + 16, "tick", "middle"))
    body.append(label(x_label, (LEFT + right) / 2, HEIGHT - 6, "axis", "middle"))
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
        body.append(rect(f"bar c{s.colour}", x, 4, 12, 12))
        body.append(label(s.name, x + 18, 14, "tick"))
        x += 40 + 6.5 * len(s.name)
    return body


def _finite(series: Series) -> Series:
    points = tuple(p for p in series.points if math.isfinite(p[0]) and math.isfinite(p[1]))
    return series.model_copy(update={"points": points})


def _widened(low: float, high: float) -> tuple[float, float]:
    if high > low:
        return low, high
    margin = abs(low) * 0.1 or 0.5
    return low - margin, high + margin
